// A program cut into passes over the image.
//
// A pass reads the image once and writes it once: at most one op that looks at neighbours (a warp, a filter), then ops on
// single pixels. An op that needs statistics of the whole image starts a pass: its input must be there first.
#pragma once

#include "filter.h"

namespace gpuaug {

constexpr int kMaxStages = 6;   // pixel stages of a pass
constexpr int kMaxPasses = 2 * kProgramWords;

struct Stage {
  Op op;        // of a channel-mixing stage
  bool table;   // a table stage: its table replaces op
};

enum PassKind : int { kPassCopy, kPassWarp, kPassSharpness, kPassBlurRows, kPassBlurColumns };

struct Pass {
  PassKind kind;
  Op op;            // of the warp or filter
  int first, last;  // pixel ops: program ops first..last-1
};

// Where the image of a pass lies: in the batch, in the working memory (shared memory on the device) or in its scratch.
enum Place : int { kInBatch, kInWork, kInScratch };

// The ops of one chain (0 for an ordinary program).
struct Ops {
  Op op[kProgramWords];
  int count;
};

GPUAUG_HOST_DEVICE void read_ops(const int32_t* record, int chain, bool chained, Ops& ops) {
  ops.count = 0;
  OpReader reader(record);
  Op op;
  int current = 0;
  while (reader.next(op)) {
    if (op.opcode() != kOpNone && (!chained || current == chain)) ops.op[ops.count++] = op;
    if (chained && op.has(kOpFlagChainEnd)) ++current;
  }
}

struct Passes {
  Pass pass[kMaxPasses];
  Place source[kMaxPasses + 1];  // source[k + 1] is where pass k writes
  int count;
};

// Whether op would fit into the stages that exist: tables that follow each other share a stage.
GPUAUG_HOST_DEVICE bool adds_stage(const Op& op, bool after_table) { return !(op.is_table() && after_table); }

GPUAUG_HOST_DEVICE void plan_passes(const Ops& ops, Passes& plan) {
  plan.count = 0;
  int i = 0;
  do {
    Pass pass = {kPassCopy, {0, nullptr}, i, i};
    if (i < ops.count && ops.op[i].needs_neighbours()) {
      pass.op = ops.op[i];
      pass.kind = pass.op.is_warp() ? kPassWarp : pass.op.opcode() == kOpSharpness ? kPassSharpness : kPassBlurRows;
      pass.first = pass.last = ++i;
      if (pass.kind == kPassBlurRows) {
        plan.pass[plan.count++] = pass;
        pass.kind = kPassBlurColumns;
      }
    }
    int stages = 0;
    bool after_table = false;
    while (i < ops.count && !ops.op[i].needs_neighbours()) {
      const Op& op = ops.op[i];
      const bool starts_pass = pass.kind == kPassCopy && i == pass.first;
      if (op.needs_statistics() && !starts_pass) break;
      if (adds_stage(op, after_table) && stages == kMaxStages) break;
      stages += adds_stage(op, after_table);
      after_table = op.is_table();
      pass.last = ++i;
    }
    plan.pass[plan.count++] = pass;
  } while (i < ops.count);
  // The last pass writes the scratch image. A pass that looks at neighbours cannot write where it reads.
  plan.source[plan.count] = kInScratch;
  for (int k = plan.count - 1; k > 0; --k) {
    plan.source[k] = plan.pass[k].kind != kPassCopy && plan.source[k + 1] == kInWork ? kInScratch : kInWork;
  }
  plan.source[0] = kInBatch;
}

// Calls body with the function (x, y) -> Pixel of a pass.
template <typename Body>
GPUAUG_HOST_DEVICE void with_pixel_source(const Pass& pass, const Image& image, int32_t fill, const BlurKernel* blur,
                                          const Body& body) {
  switch (pass.kind) {
    case kPassCopy: body(Copy{image}); break;
    case kPassSharpness: body(Sharpness{image, pass.op.number(0)}); break;
    case kPassBlurRows: body(Blur<false>{image, blur}); break;
    case kPassBlurColumns: body(Blur<true>{image, blur}); break;
    default: {
      const Warp warp = warp_of(pass.op, fill, image.height, image.width);
      if (warp.interpolation == Interpolation::kNearest) {
        body(Warped<Interpolation::kNearest>{image, warp});
      } else if (warp.interpolation == Interpolation::kBilinear) {
        body(Warped<Interpolation::kBilinear>{image, warp});
      } else {
        body(Warped<Interpolation::kBicubic>{image, warp});
      }
    }
  }
}

// The pixel stages of a pass; tables lie one after the other, [stage][channel][value].
struct Stages {
  Stage stage[kMaxStages];
  int count;
};

constexpr int kTableBytes = kChannels * 256;

GPUAUG_HOST_DEVICE void plan_stages(const Ops& ops, const Pass& pass, Stages& stages) {
  stages.count = 0;
  bool after_table = false;
  for (int i = pass.first; i < pass.last; ++i) {
    const Op& op = ops.op[i];
    if (adds_stage(op, after_table)) stages.stage[stages.count++] = {op, op.is_table()};
    after_table = op.is_table();
  }
}

GPUAUG_HOST_DEVICE Pixel looked_up(const uint8_t* table, Pixel p) { return {table[p.r], table[256 + p.g], table[512 + p.b]}; }

template <int kCount>
GPUAUG_HOST_DEVICE void through_stages(const Stages& stages, const uint8_t* tables, Pixel (&pixels)[kCount]) {
  for (int s = 0; s < stages.count; ++s) {
    if (stages.stage[s].table) {
      for (Pixel& p : pixels) p = looked_up(tables + s * kTableBytes, p);
    } else {
      mix_channels(stages.stage[s].op, pixels);
    }
  }
}

}  // namespace gpuaug
