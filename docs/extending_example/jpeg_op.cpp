// example::decode_jpeg: JPEG bytes to an RGB picture, through libjpeg-turbo where CMake found it.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <csetjmp>
#include <cstdio>
#include <stdexcept>
#include <string>

#ifdef HAVE_JPEG
#include <jpeglib.h>
#endif

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

#ifdef HAVE_JPEG

// libjpeg reports errors by calling back; the default prints and ends the process. An exception must not pass through
// its C frames, so the callback jumps to a place above them (setjmp) that throws.
struct ErrorManager {
  jpeg_error_mgr base;
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

void remember_and_jump(j_common_ptr info) {
  auto* manager = reinterpret_cast<ErrorManager*>(info->err);
  manager->base.format_message(info, manager->message);
  longjmp(manager->jump, 1);
}

void stay_silent(j_common_ptr, int) {}

// The part between setjmp and longjmp has no C++ object with a destructor.
bool read_header(jpeg_decompress_struct& info, ErrorManager& errors, const unsigned char* bytes, unsigned long count) {
  if (setjmp(errors.jump)) return false;
  jpeg_mem_src(&info, bytes, count);
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  return true;
}

bool read_rows(jpeg_decompress_struct& info, ErrorManager& errors, unsigned char* pixels) {
  if (setjmp(errors.jump)) return false;
  const size_t row_bytes = size_t{3} * info.output_width;
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels + info.output_scanline * row_bytes;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

struct Decompressor {  // frees libjpeg's memory on every way out
  jpeg_decompress_struct info{};
  explicit Decompressor(ErrorManager& errors) {
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = remember_and_jump;
    errors.base.emit_message = stay_silent;
    jpeg_create_decompress(&info);
  }
  ~Decompressor() { jpeg_destroy_decompress(&info); }
};

Tensor decode(const Tensor& bytes) {
  ErrorManager errors{};
  Decompressor decompressor(errors);
  jpeg_decompress_struct& info = decompressor.info;
  const auto fail = [&] { throw std::runtime_error(std::string("decode_jpeg: ") + errors.message); };
  if (!read_header(info, errors, bytes.const_data_ptr<uint8_t>(), static_cast<unsigned long>(bytes.numel()))) fail();
  const int64_t shape[3] = {info.output_height, info.output_width, 3};
  Tensor picture = torch::stable::empty({shape, 3}, ScalarType::Byte);
  if (!read_rows(info, errors, picture.mutable_data_ptr<uint8_t>())) fail();
  return picture;
}

#else

Tensor decode(const Tensor&) { throw std::runtime_error("decode_jpeg: built without libjpeg (CMake did not find it)"); }

#endif

Tensor decode_jpeg(const Tensor& bytes) {
  if (bytes.scalar_type() != ScalarType::Byte || bytes.dim() != 1) {
    throw std::runtime_error("decode_jpeg: bytes must be torch.uint8 of one dimension");
  }
  return decode(torch::stable::contiguous(bytes));
}

}  // namespace

STABLE_TORCH_LIBRARY(example, m) { m.def("decode_jpeg(Tensor bytes) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(example, CPU, m) { m.impl("decode_jpeg", TORCH_BOX(&decode_jpeg)); }
