"""Matrices for `warp`: builders, composition, inversion, and the affine map between two triangles.

Every matrix in this package maps a place in the result to where its pixel comes from (dst to src), in pixels, x to the
right and y down, with the centre of pixel i at i + 0.5. The builders are named after what happens to the picture:
`rotation(90)` turns it counter-clockwise. Arguments are numbers, or tensors (N,) for one matrix a sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Number = float | torch.Tensor


def _matrix(rows: Sequence[Sequence[Number]]) -> torch.Tensor:
    """A (3, 3) or (N, 3, 3) float32 matrix of nine numbers or tensors (N,), through float64."""
    tensors = [v for row in rows for v in row if isinstance(v, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    values = [torch.as_tensor(v, dtype=torch.float64, device=device) for row in rows for v in row]
    flat = torch.stack(torch.broadcast_tensors(*values), -1)  # type: ignore[no-untyped-call]
    return flat.reshape(*flat.shape[:-1], 3, 3).to(torch.float32)


def _about(centre: tuple[Number, Number], a: Number, b: Number, c: Number, d: Number) -> torch.Tensor:
    """The map (a b; c d) about a centre."""
    x, y = centre
    return _matrix([[a, b, x - a * x - b * y], [c, d, y - c * x - d * y], [0, 0, 1]])


def _as_double(value: Number) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


def translation(x: Number, y: Number) -> torch.Tensor:
    """Move the picture by x pixels to the right and y down."""
    return _matrix([[1, 0, -x], [0, 1, -y], [0, 0, 1]])


def scaling(x: Number, y: Number, centre: tuple[Number, Number] = (0.0, 0.0)) -> torch.Tensor:
    """Enlarge the picture x times across and y times down, about a centre (x, y)."""
    return _about(centre, 1 / _as_double(x), 0, 0, 1 / _as_double(y))


def rotation(degrees: Number, centre: tuple[Number, Number] = (0.0, 0.0)) -> torch.Tensor:
    """Turn the picture counter-clockwise about a centre (x, y), as `PIL.Image.rotate` and `cv2.getRotationMatrix2D`."""
    angle = torch.deg2rad(_as_double(degrees))
    cos, sin = angle.cos(), angle.sin()
    return _about(centre, cos, -sin, sin, cos)


def shear(x_degrees: Number, y_degrees: Number, centre: tuple[Number, Number] = (0.0, 0.0)) -> torch.Tensor:
    """Slant the picture: x grows by tan(x_degrees) a pixel downwards, y by tan(y_degrees) a pixel to the right."""
    x, y = (torch.deg2rad(_as_double(v)).tan() for v in (x_degrees, y_degrees))
    scale = 1 / (1 - x * y)
    return _about(centre, scale, -x * scale, -y * scale, scale)


def horizontal_flip(width: Number) -> torch.Tensor:
    """Mirror a picture of `width` left to right."""
    return _matrix([[-1, 0, width], [0, 1, 0], [0, 0, 1]])


def vertical_flip(height: Number) -> torch.Tensor:
    """Mirror a picture of `height` top to bottom."""
    return _matrix([[1, 0, 0], [0, -1, height], [0, 0, 1]])


def crop_resize(top: Number, left: Number, height: Number, width: Number, output_size: tuple[int, int]) -> torch.Tensor:
    """Cut out a window and stretch it to `output_size` (height, width)."""
    return _matrix([[width / output_size[1], 0, left], [0, height / output_size[0], top], [0, 0, 1]])


def compose(*matrices: torch.Tensor) -> torch.Tensor:
    """One matrix for several warps: the first argument is the first warp.

    Args:
        matrices: (3, 3) or (N, 3, 3) each, at least one.

    Returns:
        (3, 3) or (N, 3, 3), of the type of the first; multiplied in float64.
    """
    if not matrices:
        raise ValueError("compose: matrices must be at least one, got none")
    total = square("compose", matrices[0]).double()
    for matrix in matrices[1:]:
        total = total @ square("compose", matrix).double()
    return total.to(matrices[0].dtype)


def invert(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix that undoes a warp; through float64. A singular one gives values that are not finite.

    Args:
        matrix: (2, 3), (3, 3), (N, 2, 3) or (N, 3, 3).

    Returns:
        (3, 3) or (N, 3, 3), of the type of matrix.
    """
    full = square("invert", matrix).double()
    inverse, singular = torch.linalg.inv_ex(full)
    return torch.where((singular != 0)[..., None, None], float("nan"), inverse).to(matrix.dtype)


def square(op: str, matrix: torch.Tensor) -> torch.Tensor:
    """(…, 3, 3) of (…, 2, 3) or (…, 3, 3)."""
    if not isinstance(matrix, torch.Tensor) or not matrix.is_floating_point():
        kind = matrix.dtype if isinstance(matrix, torch.Tensor) else type(matrix).__name__
        raise ValueError(f"{op}: matrix must be a floating tensor, got {kind}")
    if matrix.ndim not in (2, 3) or tuple(matrix.shape[-2:]) not in ((2, 3), (3, 3)):
        raise ValueError(
            f"{op}: matrix must have shape (2, 3), (3, 3), (N, 2, 3) or (N, 3, 3), got {tuple(matrix.shape)}"
        )
    if matrix.shape[-2] == 3:
        return matrix
    last = matrix.new_tensor([0.0, 0.0, 1.0]).expand(*matrix.shape[:-2], 1, 3)
    return torch.cat([matrix, last], -2)


def affine_from_points(src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    """The affine matrix for `warp` that moves points of the source to points of the result.

    Three pairs determine it; of more, it is the least-squares fit of the source points.

    Args:
        src: (3, 2), (P, 2) with P >= 3, or (N, P, 2): points `x, y` in the source image, floating.
        dst: the same shape: where they shall be in the result.

    Returns:
        (2, 3) or (N, 2, 3), float32, computed in float64, on the device of src.

    Raises:
        ValueError: the shapes differ or hold fewer than three points, or the dst points lie on one line.
    """
    for name, points in (("src", src), ("dst", dst)):
        if not isinstance(points, torch.Tensor) or not points.is_floating_point():
            kind = points.dtype if isinstance(points, torch.Tensor) else type(points).__name__
            raise ValueError(f"affine_from_points: {name} must be a floating tensor, got {kind}")
    if src.shape != dst.shape or src.ndim not in (2, 3) or src.shape[-1] != 2 or src.shape[-2] < 3:
        raise ValueError(
            "affine_from_points: src and dst must have one shape (P, 2) or (N, P, 2) with P >= 3, "
            f"got {tuple(src.shape)} and {tuple(dst.shape)}"
        )
    source, target = src.double(), dst.double().to(src.device)
    middle_target, middle_source = target.mean(-2, keepdim=True), source.mean(-2, keepdim=True)
    t, s = target - middle_target, source - middle_source
    gram = t.mT @ t
    determinant, trace = torch.linalg.det(gram), gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    if (~(determinant > 1e-12 * trace**2)).any():
        raise ValueError("affine_from_points: dst must not lie on one line")
    linear = torch.linalg.solve(gram, t.mT @ s).mT
    offset = middle_source.mT - linear @ middle_target.mT
    return torch.cat([linear, offset], -1).to(torch.float32)
