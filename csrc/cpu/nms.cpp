// nms on the CPU: greedy in score order, in rounds.
//
// A round takes the best boxes that are left, settles them among themselves, and lets those that stay suppress all others:
// many kept boxes against a tile of candidates in the L1 cache, vectorised over the candidates, tiles in parallel.
// Suppressed boxes leave the arrays at the end of a round, so nobody meets them again. Classes are separate problems.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "../nms.h"
#include "clones.h"

namespace gpuaug {
namespace {

constexpr int64_t kTile = 512;
// Boxes settled in a round. Threads meet at the end of each, so with threads there are fewer, longer rounds.
constexpr int64_t kRoundAlone = 64, kRoundOfThreads = 512;
// Pairs that are worth waking a second thread: a millisecond or so.
constexpr int64_t kPairsOfTask = 1 << 21;

// Boxes that are not yet kept or suppressed, best first.
struct Candidates {
  std::vector<float> x1, y1, x2, y2, area;
  std::vector<int64_t> rank;
  std::vector<int32_t> suppressed;

  explicit Candidates(size_t n) : x1(n), y1(n), x2(n), y2(n), area(n), rank(n), suppressed(n, 0) {}

  int64_t size() const { return static_cast<int64_t>(rank.size()); }

  void set(int64_t i, const Box& b, int64_t rank_of_box) {
    x1[i] = b.x1, y1[i] = b.y1, x2[i] = b.x2, y2[i] = b.y2, area[i] = box_area(b), rank[i] = rank_of_box;
  }

  Box box(int64_t i) const { return {x1[i], y1[i], x2[i], y2[i]}; }

  // Leaves out the first `settled` boxes and the suppressed ones.
  void compact(int64_t settled) {
    int64_t to = 0;
    for (int64_t from = settled; from < size(); ++from) {
      if (suppressed[from]) continue;
      x1[to] = x1[from], y1[to] = y1[from], x2[to] = x2[from], y2[to] = y2[from];
      area[to] = area[from], rank[to] = rank[from];
      ++to;
    }
    rank.resize(to);
    suppressed.assign(to, 0);
  }
};

struct KeptBox {
  Box box;
  float area;
};

GPUAUG_CLONES void suppress(const KeptBox* kept, int64_t kept_count, const float* __restrict__ x1,
                            const float* __restrict__ y1, const float* __restrict__ x2, const float* __restrict__ y2,
                            const float* __restrict__ area, int32_t* __restrict__ suppressed, int64_t begin, int64_t end,
                            IouThreshold threshold) {
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t tile_end = std::min(tile + kTile, end);
    for (int64_t k = 0; k < kept_count; ++k) {
      const KeptBox by = kept[k];
      for (int64_t j = tile; j < tile_end; ++j) {
        suppressed[j] |= iou_exceeds(by.box, by.area, {x1[j], y1[j], x2[j], y2[j]}, area[j], threshold);
      }
    }
  }
}

// Marks the ranks that stay, at most `limit` of them.
void keep_greedily(Candidates& c, const IouThreshold& threshold, int64_t limit, uint8_t* keep) {
  const auto suppress_range = [&](const KeptBox* kept, int64_t count, int64_t begin, int64_t end) {
    suppress(kept, count, c.x1.data(), c.y1.data(), c.x2.data(), c.y2.data(), c.area.data(), c.suppressed.data(), begin,
             end, threshold);
  };
  const int64_t round = torch::stable::get_num_threads() > 1 ? kRoundOfThreads : kRoundAlone;
  std::vector<KeptBox> kept(round);
  for (int64_t total = 0; c.size() > 0 && total < limit;) {
    const int64_t settled = std::min(round, c.size());
    int64_t count = 0;
    for (int64_t i = 0; i < settled; ++i) {
      if (c.suppressed[i]) continue;
      keep[c.rank[i]] = 1;
      if (++total == limit) return;
      kept[count] = {c.box(i), c.area[i]};
      suppress_range(&kept[count], 1, i + 1, settled);
      ++count;
    }
    const int64_t grain = std::max(kTile, kPairsOfTask / std::max<int64_t>(count, 1));
    torch::stable::parallel_for(settled, c.size(), grain, [&](int64_t begin, int64_t end) {
      suppress_range(kept.data(), count, begin, end);
    });
    c.compact(settled);
  }
}

bool has_nan(const float* values, int64_t count) {
  return std::any_of(values, values + count, [](float v) { return std::isnan(v); });
}

// Ranks 0 .. n-1, those of each class together and best first; `starts` gets where each class starts, and n.
std::vector<int64_t> ranks_by_class(const NmsCall& call, std::vector<int64_t>& starts) {
  std::vector<int64_t> ranks(call.count);
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  starts = {0};
  if (call.classes) {
    const int64_t* classes = call.classes->const_data_ptr<int64_t>();
    const int64_t* order = call.order.const_data_ptr<int64_t>();
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](int64_t a, int64_t b) { return classes[order[a]] < classes[order[b]]; });
    for (int64_t i = 1; i < call.count; ++i) {
      if (classes[order[ranks[i]]] != classes[order[ranks[i - 1]]]) starts.push_back(i);
    }
  }
  starts.push_back(call.count);
  return ranks;
}

std::tuple<Tensor, Tensor> nms_padded(const Tensor& boxes, const Tensor& scores, std::optional<Tensor> classes,
                                      double iou_threshold, int64_t max_out) {
  const NmsCall call = prepare_nms(boxes, scores, classes, iou_threshold, max_out);
  int64_t* indices = call.indices.mutable_data_ptr<int64_t>();
  int64_t* kept = call.kept.mutable_data_ptr<int64_t>();
  std::fill_n(indices, max_out, int64_t{-1});
  *kept = 0;
  const float* coordinates = call.boxes.const_data_ptr<float>();
  if (has_nan(call.scores.const_data_ptr<float>(), call.count) || has_nan(coordinates, 4 * call.count)) {
    *kept = -1;
    return {call.indices, call.kept};
  }
  const int64_t* order = call.order.const_data_ptr<int64_t>();
  std::vector<int64_t> starts;
  const std::vector<int64_t> ranks = ranks_by_class(call, starts);
  std::vector<uint8_t> keep(call.count, 0);
  const int64_t segments = static_cast<int64_t>(starts.size()) - 1;
  const auto run = [&](int64_t segment) {
    const int64_t begin = starts[segment], size = starts[segment + 1] - begin;
    Candidates candidates(size);
    for (int64_t i = 0; i < size; ++i) {
      const float* b = coordinates + 4 * order[ranks[begin + i]];
      candidates.set(i, {b[0], b[1], b[2], b[3]}, ranks[begin + i]);
    }
    keep_greedily(candidates, call.threshold, max_out, keep.data());
  };
  if (segments == 1) {
    run(0);  // parallel inside
  } else {
    torch::stable::parallel_for(0, segments, 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) run(s);
    });
  }
  for (int64_t rank = 0; rank < call.count && *kept < max_out; ++rank) {
    if (keep[rank]) indices[(*kept)++] = order[rank];
  }
  return {call.indices, call.kept};
}

std::tuple<Tensor, Tensor, Tensor> soft_nms_padded(const Tensor& boxes, const Tensor& scores, double iou_threshold,
                                                   int64_t method, double sigma, double min_score) {
  const SoftNmsCall call = prepare_soft_nms(boxes, scores, iou_threshold, method, sigma, min_score);
  const int64_t n = call.count;
  int64_t* indices = call.indices.mutable_data_ptr<int64_t>();
  float* selected_scores = call.decayed_scores.mutable_data_ptr<float>();
  int64_t* kept = call.kept.mutable_data_ptr<int64_t>();
  std::fill_n(indices, n, int64_t{-1});
  std::fill_n(selected_scores, n, 0.0f);
  *kept = 0;
  const float* coordinates = call.boxes.const_data_ptr<float>();
  float* score = call.scores.mutable_data_ptr<float>();
  if (has_nan(score, n) || has_nan(coordinates, 4 * n)) {
    *kept = -1;
    return {call.indices, call.decayed_scores, call.kept};
  }
  std::vector<Box> box(n);
  std::vector<float> area(n);
  std::vector<uint32_t> left;  // whose score is still enough
  for (int64_t i = 0; i < n; ++i) {
    box[i] = {coordinates[4 * i], coordinates[4 * i + 1], coordinates[4 * i + 2], coordinates[4 * i + 3]};
    area[i] = box_area(box[i]);
    if (score[i] >= call.rule.min_score) left.push_back(static_cast<uint32_t>(i));
  }
  while (!left.empty()) {
    uint64_t best = 0;
    for (const uint32_t i : left) best = std::max(best, selection_key(score[i], i));
    const uint32_t chosen = selected_index(best);
    indices[*kept] = chosen;
    selected_scores[(*kept)++] = score[chosen];
    size_t to = 0;
    for (const uint32_t i : left) {
      if (i == chosen) continue;
      score[i] = decayed_score(score[i], box[chosen], area[chosen], box[i], area[i], call.rule);
      if (score[i] >= call.rule.min_score) left[to++] = i;
    }
    left.resize(to);
  }
  return {call.indices, call.decayed_scores, call.kept};
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) {
  m.impl("nms_padded", TORCH_BOX(&gpuaug::nms_padded));
  m.impl("soft_nms_padded", TORCH_BOX(&gpuaug::soft_nms_padded));
}
