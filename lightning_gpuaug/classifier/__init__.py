"""A timm network as a LightningModule: the one room that knows timm and torchmetrics."""

from lightning_gpuaug.classifier.module import Classifier

__all__ = ["Classifier"]
