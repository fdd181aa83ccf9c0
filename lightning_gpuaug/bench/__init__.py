"""What `gpuaug bench` measures: augmentation and loading, ours beside what else is installed, in one run."""
