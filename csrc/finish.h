// From a sample's uint8 pixels to the values of the result: AugMix sum, normalise, erase, mix.
#pragma once

#include "color.h"
#include "random.h"

namespace gpuaug {

// One channel of AugMix: weighted images, summed in float32 and truncated, as torchvision has it.
struct ChainWeights {
  float original;
  float chain[kMaxChains];

  GPUAUG_HOST_DEVICE explicit ChainWeights(const int32_t* record) {
    original = float_of(record[kWordOriginalWeight]);
    for (int i = 0; i < kMaxChains; ++i) chain[i] = float_of(record[kWordChainWeight + i]);
  }

  GPUAUG_HOST_DEVICE float start(uint8_t pixel) const { return static_cast<float>(pixel) * original; }
  GPUAUG_HOST_DEVICE float add(float sum, int i, uint8_t pixel) const {
    return fmaf(chain[i], static_cast<float>(pixel), sum);
  }
};

enum class EraseMode { kNone, kConstant, kNoise };

struct Erase {
  EraseMode mode;
  Rectangle where;
  float value[kChannels];

  Erase() = default;
  // `unit` brings erased values from the normalised image's units into the result's.
  GPUAUG_HOST_DEVICE Erase(const int32_t* record, int height, int width, const ChannelAffine& unit) {
    const int32_t flags = has_version(record) ? record[kWordFlags] : 0;
    where = clipped_rectangle(record + kWordErase, height, width);
    mode = flags & kFlagEraseNoise      ? EraseMode::kNoise
           : flags & kFlagEraseConstant ? EraseMode::kConstant
                                        : EraseMode::kNone;
    if (where.top == where.bottom || where.left == where.right) mode = EraseMode::kNone;
    for (int c = 0; c < kChannels; ++c) {
      value[c] = fmaf(float_of(record[kWordEraseValue + c]), unit.scale[c], unit.bias[c]);
    }
  }
};

GPUAUG_HOST_DEVICE float noise_value(const Noise& noise, int channel, const ChannelAffine& unit) {
  return fmaf(noise.channel[channel], unit.scale[channel], unit.bias[channel]);
}

struct Mix {
  bool blend, cut;
  int64_t partner;
  float own;        // share of the sample itself
  Rectangle where;  // CutMix

  Mix() = default;
  GPUAUG_HOST_DEVICE Mix(const int32_t* record, int64_t samples, int height, int width) {
    const int32_t flags = has_version(record) ? record[kWordFlags] : 0;
    blend = (flags & kFlagMixUp) != 0;
    cut = !blend && (flags & kFlagCutMix) != 0;
    partner = record[kWordPartner];
    if (partner < 0 || partner >= samples) blend = cut = false;
    own = float_of(record[kWordLambda]);
    where = clipped_rectangle(record + kWordCut, height, width);
  }

  GPUAUG_HOST_DEVICE bool any() const { return blend || cut; }

  GPUAUG_HOST_DEVICE float blended_value(float mine, float theirs) const {
    return fmaf(own, mine, (1.0f - own) * theirs);
  }
};

// A value of the result, in its type: rounded to nearest even; uint8 is clamped too.
template <typename T>
GPUAUG_HOST_DEVICE T finished(float value) {
  return static_cast<T>(value);
}

template <>
GPUAUG_HOST_DEVICE uint8_t finished<uint8_t>(float value) {
  return static_cast<uint8_t>(rounded_byte(value));
}

}  // namespace gpuaug
