// The record: what is to happen to one sample, in 64 words of 32 bits. lightning_gpuaug/ops/record.py mirrors it.
//
//   word   content
//    0     kRecordVersion
//    1     flags: horizontal and vertical flip, crop filter, erase mode, mix mode
//    2     number of AugMix chains, 0 without AugMix
//    3- 4  the draw's key: seed, epoch           } of the noise that is drawn on the device
//    5- 6  the sample's index, low and high word }
//    7     row of the mix partner in the batch
//    8-11  crop window in the source image: top, left, height, width; height 0 is the whole image
//   12-15  erased rectangle in the result: top, left, height, width
//   16-18  erased value of each channel, float, in the normalised image's units
//   19     mix: share of the sample itself, float in 0..1
//   20-23  CutMix box in the result: top, left, height, width
//   24     fill of uncovered pixels: red | green << 8 | blue << 16
//   25     AugMix: weight of the unchanged image, float
//   26-29  AugMix: weight of each chain, float
//   30-31  0
//   32-63  the program: ops in their order, each a head word followed by its parameters; words of 0 are skipped
//
// A head word: opcode | interpolation << 8 | border << 12 | op flags << 16.
//
// The order of the stages: crop and resize, flip, program (or AugMix chains), normalise, erase, mix.
#pragma once

#include <cstdint>
#include <cstring>

#include "pixel.h"
#include "resample.h"

namespace gpuaug {

constexpr int kRecordWords = 64;
constexpr int32_t kRecordVersion = 0x47410001;  // "GA", version 1
constexpr int kProgramWords = 32;
constexpr int kMaxChains = 4;

enum Word : int {
  kWordVersion = 0,
  kWordFlags = 1,
  kWordChains = 2,
  kWordSeed = 3,
  kWordEpoch = 4,
  kWordIndexLow = 5,
  kWordIndexHigh = 6,
  kWordPartner = 7,
  kWordCrop = 8,
  kWordErase = 12,
  kWordEraseValue = 16,
  kWordLambda = 19,
  kWordCut = 20,
  kWordFill = 24,
  kWordOriginalWeight = 25,
  kWordChainWeight = 26,
  kWordProgram = 32,
};

enum Flag : int32_t {
  kFlagFlipHorizontal = 1 << 0,
  kFlagFlipVertical = 1 << 1,
  kFlagEraseConstant = 1 << 4,
  kFlagEraseNoise = 1 << 5,
  kFlagMixUp = 1 << 6,
  kFlagCutMix = 1 << 7,
  kFlagAntialias = 1 << 8,
  kCropFilterShift = 12,  // an Interpolation in two bits
};

enum Opcode : int32_t {
  kOpNone = 0,
  kOpTranslate = 1,     // tx, ty: source = destination + (tx, ty)
  kOpShearX = 2,        // s: source x = x + s y, about the top left corner
  kOpShearY = 3,        // s: source y = y + s x
  kOpRotate = 4,        // c, s: source = centre + (c dx + s dy, c dy - s dx)
  kOpAffine = 5,        // six numbers, row by row: source = M destination
  kOpPerspective = 6,   // eight numbers; the ninth is 1
  kOpBrightness = 7,    // factor
  kOpContrast = 8,      // factor, 1 - factor
  kOpSaturation = 9,    // factor, 1 - factor
  kOpHue = 10,          // turn, -0.5..0.5
  kOpPosterize = 11,    // bits kept, int 0..8
  kOpSolarize = 12,     // threshold: values at or above it are inverted
  kOpSolarizeAdd = 13,  // added value, threshold: values below it are raised
  kOpInvert = 14,
  kOpGamma = 15,        // gamma, gain
  kOpEqualize = 16,
  kOpAutocontrast = 17,
  kOpSharpness = 18,    // 1 - factor
  kOpGrayscale = 19,
  kOpBlur = 20,         // sigma in pixels, kernel size, odd int
  kOpColorMatrix = 21,  // twelve numbers: 3 x 4, row by row, on the 0..255 scale
  kOpCount = 22,
};



enum RecordBorder : int32_t { kConstant = 0, kReplicate = 1, kReflect = 2, kReflect101 = 3, kPil = 4 };

enum OpFlag : int32_t {
  kOpFlagChainEnd = 1,  // the op is the last of its AugMix chain
  kOpFlagPilGray = 2,   // grey and its mean as Pillow has them (rounded), not as torchvision has (truncated)
};

constexpr int kMaxOpParameters = 12;

GPUAUG_HOST_DEVICE int parameters_of(int opcode) {
  switch (opcode) {
    case kOpTranslate:
    case kOpRotate:
    case kOpContrast:
    case kOpSaturation:
    case kOpSolarizeAdd:
    case kOpGamma:
    case kOpBlur: return 2;
    case kOpShearX:
    case kOpShearY:
    case kOpBrightness:
    case kOpHue:
    case kOpPosterize:
    case kOpSolarize:
    case kOpSharpness: return 1;
    case kOpAffine: return 6;
    case kOpPerspective: return 8;
    case kOpColorMatrix: return 12;
    default: return 0;
  }
}

GPUAUG_HOST_DEVICE float float_of(int32_t word) {
#if defined(__CUDA_ARCH__)
  return __int_as_float(word);
#else
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
#endif
}

GPUAUG_HOST_DEVICE int clamp_int(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

// A rectangle clipped to an image: rows top..bottom-1, columns left..right-1. Any words are safe.
struct Rectangle {
  int top, left, bottom, right;

  GPUAUG_HOST_DEVICE bool contains(int y, int x) const { return y >= top && y < bottom && x >= left && x < right; }
};

GPUAUG_HOST_DEVICE Rectangle clipped_rectangle(const int32_t* words, int height, int width) {
  Rectangle r;
  r.top = clamp_int(words[0], 0, height);
  r.left = clamp_int(words[1], 0, width);
  r.bottom = r.top + clamp_int(words[2], 0, height - r.top);
  r.right = r.left + clamp_int(words[3], 0, width - r.left);
  return r;
}

struct Op {
  int32_t head;
  const int32_t* words;  // parameters

  GPUAUG_HOST_DEVICE int opcode() const { return head & 0xff; }
  GPUAUG_HOST_DEVICE Interpolation interpolation() const {
    return static_cast<Interpolation>(clamp_int((head >> 8) & 0xf, 0, 2));
  }
  GPUAUG_HOST_DEVICE int border() const { return clamp_int((head >> 12) & 0xf, 0, kPil); }
  GPUAUG_HOST_DEVICE bool has(OpFlag flag) const { return (head >> 16) & flag; }
  GPUAUG_HOST_DEVICE float number(int i) const { return float_of(words[i]); }
  GPUAUG_HOST_DEVICE int integer(int i) const { return words[i]; }

  GPUAUG_HOST_DEVICE bool is_warp() const { return opcode() >= kOpTranslate && opcode() <= kOpPerspective; }
  GPUAUG_HOST_DEVICE bool needs_neighbours() const {
    return is_warp() || opcode() == kOpSharpness || opcode() == kOpBlur;
  }
  GPUAUG_HOST_DEVICE bool needs_statistics() const {
    return opcode() == kOpContrast || opcode() == kOpEqualize || opcode() == kOpAutocontrast;
  }
  // Whether each channel maps by itself, so that the op is a table.
  GPUAUG_HOST_DEVICE bool is_table() const {
    switch (opcode()) {
      case kOpBrightness:
      case kOpContrast:
      case kOpPosterize:
      case kOpSolarize:
      case kOpSolarizeAdd:
      case kOpInvert:
      case kOpGamma:
      case kOpEqualize:
      case kOpAutocontrast: return true;
      default: return false;
    }
  }
};

// Walks the ops of a program (kOpNone too, where its head carries a flag); stops at its end, at an unknown opcode and at an op whose parameters would leave the record.
struct OpReader {
  const int32_t* program;
  int at = 0;

  GPUAUG_HOST_DEVICE explicit OpReader(const int32_t* record) : program(record + kWordProgram) {}

  GPUAUG_HOST_DEVICE bool next(Op& op) {
    while (at < kProgramWords) {
      const int32_t head = program[at++];
      if (head == 0) continue;
      const int opcode = head & 0xff;
      const int count = parameters_of(opcode);
      if (opcode >= kOpCount || at + count > kProgramWords) {
        at = kProgramWords;
        return false;
      }
      op.head = head;
      op.words = program + at;
      at += count;
      return true;
    }
    return false;
  }
};

GPUAUG_HOST_DEVICE bool has_version(const int32_t* record) { return record[kWordVersion] == kRecordVersion; }

// AugMix chains of a record, at most `limit`; 0 is an ordinary program.
GPUAUG_HOST_DEVICE int chains_of(const int32_t* record, int limit) {
  return clamp_int(record[kWordChains], 0, limit < kMaxChains ? limit : kMaxChains);
}

// Whether the program area holds anything: then the sample's pixels are those of its scratch image. A record of another
// version does nothing.
GPUAUG_HOST_DEVICE bool has_program(const int32_t* record) {
  if (!has_version(record)) return false;
  int32_t any = 0;
  for (int i = 0; i < kProgramWords; ++i) any |= record[kWordProgram + i];
  return any != 0;
}

}  // namespace gpuaug
