// Counter-based random numbers, the same on the host and on the device.
#pragma once

#include "record.h"

namespace gpuaug {

constexpr uint32_t kNoiseSlot = 0x10000;  // far above the slots that are drawn on the host

struct Words4 {
  uint32_t word[4];
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
GPUAUG_HOST_DEVICE Words4 philox4x32(uint32_t key0, uint32_t key1, Words4 counter) {
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(c0) * 0xD2511F53u, p1 = static_cast<uint64_t>(c2) * 0xCD9E8D57u;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Natural logarithm of a positive normal float, by multiplications and additions alone (the libraries' logf differ in the
// last bit between host and device). Polynomial of Cephes; error below 1 ulp or so.
GPUAUG_HOST_DEVICE float portable_log(float value) {
  uint32_t bits;
#if defined(__CUDA_ARCH__)
  bits = __float_as_uint(value);
#else
  std::memcpy(&bits, &value, sizeof bits);
#endif
  const uint32_t offset = bits - 0x3f3504f3u;  // of sqrt(1/2)
  const float exponent = static_cast<float>(static_cast<int32_t>(offset) >> 23);
  const int32_t mantissa = static_cast<int32_t>((offset & 0x007fffffu) + 0x3f3504f3u);
  const float x = float_of(mantissa) - 1.0f;
  const float z = x * x;
  float y = 7.0376836292e-2f;
  y = fmaf(y, x, -1.1514610310e-1f);
  y = fmaf(y, x, 1.1676998740e-1f);
  y = fmaf(y, x, -1.2420140846e-1f);
  y = fmaf(y, x, 1.4249322787e-1f);
  y = fmaf(y, x, -1.6668057665e-1f);
  y = fmaf(y, x, 2.0000714765e-1f);
  y = fmaf(y, x, -2.4999993993e-1f);
  y = fmaf(y, x, 3.3333331174e-1f);
  y = y * x * z;
  y = fmaf(exponent, -2.12194440e-4f, y);
  y = fmaf(-0.5f, z, y);
  return fmaf(exponent, 0.693359375f, x + y);
}

// A standard normal number from 24 random bits: the inverse of the distribution function through Giles' single-precision
// erfinv ("Approximating the erfinv function", 2010).
GPUAUG_HOST_DEVICE float normal_from_word(uint32_t word) {
  const float x = fmaf(static_cast<float>(word >> 8), 1.0f / 8388608.0f, 1.0f / 16777216.0f - 1.0f);  // in (-1, 1), odd
  float w = -portable_log(fmaf(-x, x, 1.0f));
  float p;
  if (w < 5.0f) {
    w -= 2.5f;
    p = 2.81022636e-08f;
    p = fmaf(p, w, 3.43273939e-07f);
    p = fmaf(p, w, -3.5233877e-06f);
    p = fmaf(p, w, -4.39150654e-06f);
    p = fmaf(p, w, 0.00021858087f);
    p = fmaf(p, w, -0.00125372503f);
    p = fmaf(p, w, -0.00417768164f);
    p = fmaf(p, w, 0.246640727f);
    p = fmaf(p, w, 1.50140941f);
  } else {
    w = sqrtf(w) - 3.0f;
    p = -0.000200214257f;
    p = fmaf(p, w, 0.000100950558f);
    p = fmaf(p, w, 0.00134934322f);
    p = fmaf(p, w, -0.00367342844f);
    p = fmaf(p, w, 0.00573950773f);
    p = fmaf(p, w, -0.0076224613f);
    p = fmaf(p, w, 0.00943887047f);
    p = fmaf(p, w, 1.00167406f);
    p = fmaf(p, w, 2.83297682f);
  }
  return p * x * 1.41421356f;
}

// The noise of one pixel: three standard normal numbers keyed by the record and the pixel's position.
struct Noise {
  float channel[kChannels];
};

GPUAUG_HOST_DEVICE Noise noise_of_pixel(const int32_t* record, uint32_t pixel) {
  const Words4 counter = {{static_cast<uint32_t>(record[kWordIndexLow]), static_cast<uint32_t>(record[kWordIndexHigh]),
                           kNoiseSlot, pixel}};
  const Words4 words =
      philox4x32(static_cast<uint32_t>(record[kWordSeed]), static_cast<uint32_t>(record[kWordEpoch]), counter);
  return {{normal_from_word(words.word[0]), normal_from_word(words.word[1]), normal_from_word(words.word[2])}};
}

}  // namespace gpuaug
