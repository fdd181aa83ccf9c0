"""GPU input pipelines for PyTorch Lightning."""
