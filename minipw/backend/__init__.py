"""What an array lives on: NumPy or CuPy, threads, device, memory, a file. Alone imports cupy."""
