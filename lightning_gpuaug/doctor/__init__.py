"""What `gpuaug doctor` looks at: is this machine fit to feed a GPU, and what to do where it is not."""
