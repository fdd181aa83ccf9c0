"""The only door to NVIDIA DALI: batches of file paths or bytes in, uint8 batches out, in exactly the order asked for.

No DALI reader is used. Readers own an epoch, a shard and a shuffle, and each of these conflicts with what a training
loop needs (a sanity check, a limit, a resume). Here a batch is a matrix of paths, or the images' bytes. The pipeline
knows no epochs, and moving to another place in the data is forgetting a few batches, never a rebuild.

Files that DALI alone can read (`s3://`) it also reads without decoding them, for a source that hands over bytes.
"""

from lightning_gpuaug.pipeline.decode_pipeline import Decoded, DecodePipeline, Fed, fed
from lightning_gpuaug.pipeline.decoding import Decoding
from lightning_gpuaug.pipeline.errors import DecodeError, FileError, reason_of
from lightning_gpuaug.pipeline.files import FilePipeline, reading_pipeline, whole_file
from lightning_gpuaug.pipeline.library import release_memory, require_dali
from lightning_gpuaug.pipeline.request import Paths, Request
from lightning_gpuaug.sources.encoded import path_bytes

__all__ = [
    "DecodeError",
    "DecodePipeline",
    "Decoded",
    "Decoding",
    "Fed",
    "FileError",
    "FilePipeline",
    "Paths",
    "Request",
    "fed",
    "path_bytes",
    "reading_pipeline",
    "reason_of",
    "release_memory",
    "require_dali",
    "whole_file",
]
