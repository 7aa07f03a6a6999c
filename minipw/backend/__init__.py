"""What an array lives on: NumPy or CuPy, threads, device, memory. Alone imports cupy."""
