// Every op's schema, in one place. The kernels register themselves beside their code, in cpu/ and cuda/.
#include <torch/csrc/stable/library.h>

#include <string>

STABLE_TORCH_LIBRARY(lightning_gpuaug, m) {
  m.def("build_info() -> str");
  m.def(
      "normalize(Tensor x, float[] mean, float[] std, Tensor? flip=None, ScalarType dtype=float, "
      "bool channels_last=True) -> Tensor");
  m.def(
      "nms_padded(Tensor boxes, Tensor scores, Tensor? classes, float iou_threshold, int max_out) -> (Tensor, Tensor)");
  m.def(
      "soft_nms_padded(Tensor boxes, Tensor scores, float iou_threshold, int method, float sigma, float min_score) -> "
      "(Tensor, Tensor, Tensor)");
  m.def(
      "roi_align(Tensor x, Tensor rois, SymInt out_h, SymInt out_w, float spatial_scale, int sampling_ratio, "
      "bool aligned) -> Tensor");
  m.def(
      "roi_align_backward(Tensor grad, Tensor rois, SymInt images, SymInt height, SymInt width, float spatial_scale, "
      "int sampling_ratio, bool aligned, bool channels_last) -> Tensor");
  m.def(
      "warp(Tensor x, Tensor matrix, SymInt out_h, SymInt out_w, int interpolation, int border, float[] fill, "
      "bool half_pixel) -> Tensor");
  m.def(
      "warp_backward(Tensor grad, Tensor matrix, SymInt height, SymInt width, int interpolation, int border, "
      "bool half_pixel, bool channels_last) -> Tensor");
  m.def(
      "resize_packed(Tensor data, Tensor offsets, Tensor sizes, int height, int width, float[] mean, float[] std, "
      "Tensor? flip=None, ScalarType dtype=float, bool channels_last=True, int interpolation=1, bool antialias=True) "
      "-> Tensor");
  m.def("image_sizes(Tensor paths, bool exif_orientation=False, int threads=1) -> Tensor");
  m.def("image_sizes_packed(Tensor data, Tensor start, Tensor length, bool exif_orientation=False) -> Tensor");
  m.def(
      "read_ranges(Tensor(a!) out, Tensor start, Tensor paths, Tensor file, Tensor offset, Tensor length, "
      "int threads=1) -> Tensor");
  m.def("file_states(Tensor paths) -> Tensor");
  m.def("crc32c(Tensor data, Tensor start, Tensor length, int threads=1) -> Tensor");
  m.def("uniforms(Tensor keys, Tensor slots, int epoch, int seed) -> Tensor");
  m.def(
      "random_crops(Tensor keys, Tensor sizes, float[] scale, float[] ratio, float hflip, int epoch, int seed) -> "
      "(Tensor, Tensor, Tensor)");
  m.def("record_layout() -> str");
  m.def(
      "augment(Tensor x, Tensor params, float[] mean, float[] std, ScalarType dtype=float, bool channels_last=True, "
      "int chains=1) -> Tensor");
  m.def("crop_resize_packed(Tensor data, Tensor offsets, Tensor sizes, Tensor params, int out_h, int out_w) -> Tensor");
  m.def("crop_resize_list(Tensor[] images, Tensor params, int out_h, int out_w) -> Tensor");
  m.def(
      "crop_finish_packed(Tensor data, Tensor offsets, Tensor sizes, Tensor params, int out_h, int out_w, float[] mean, "
      "float[] std, ScalarType dtype=float, bool channels_last=True) -> Tensor");
  m.def(
      "crop_finish_list(Tensor[] images, Tensor params, int out_h, int out_w, float[] mean, float[] std, "
      "ScalarType dtype=float, bool channels_last=True) -> Tensor");
}

// JSON; lightning_gpuaug.ops.build_info() reads it.
static std::string build_info() {
  return "{\"compiler\": \"" GPUAUG_COMPILER "\", \"torch_target\": \"" GPUAUG_TORCH_TARGET
         "\", \"torch_headers\": \"" TORCH_VERSION "\"}";
}

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CompositeExplicitAutograd, m) {
  m.impl("build_info", TORCH_BOX(&build_info));
}
