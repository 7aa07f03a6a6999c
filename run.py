"""python run.py --exp permuted --head pairwise: see `python run.py --help`."""

from minipw.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
