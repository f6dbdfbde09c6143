// A model's logits and greedy tokens against a golden file written by another implementation.
//
// The file is safetensors: input_ids int32 [T], logits float32 [T, vocab], greedy int32 [N] (the continuation
// that follows input_ids), margin float32 [N] (between the two best logits of each step of it). Other logits
// may lie beside them ("logits_scale_one"); greedy and margin belong to `logits`, and are compared with it
// alone.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "core/error.h"
#include "engine/engine.h"

namespace kv8::eval {

struct GoldenBounds {
  double logit_error = 2e-3;  // largest |logit - golden|, in units of the golden logits' standard deviation
  double rms_error = std::numeric_limits<double>::infinity();  // in the same units
  double margin = 0.02;  // greedy tokens must agree where the golden margin is above this
};

// The bounds for a cache of this format. A K or V at the border of two e4m3 codes takes the
// neighbour when sums are ordered otherwise (float64 differs from float32 by up to 7e-3 of a standard
// deviation there), so that an FP8 cache is judged by its rms error and by all of its greedy tokens.
GoldenBounds default_bounds(kv_cache::KvFormat cache);

struct GoldenReport {
  std::string logits_tensor;
  int64_t positions = 0;
  double logit_deviation = 0;  // standard deviation of the golden logits
  double max_error = 0;        // in units of it
  double rms_error = 0;        // in units of it
  int64_t worst_position = 0;
  double mean_kl = 0;  // KL(golden || ours), nats, mean over positions
  double max_kl = 0;
  double top1_agreement = 0;  // share of positions whose best token is the same
  int64_t greedy_tokens = 0;  // steps compared, each after the golden prefix; 0: not compared
  int64_t greedy_agreeing = 0;
  int64_t greedy_failures = 0;  // disagreeing although the margin is above the bound
  bool passed = false;
};

// logits_tensor names the golden logits ("logits"; files of FP8 caches carry others as well).
Expected<GoldenReport> check_golden(engine::Engine& engine, const std::string& golden_file,
                                    const std::string& logits_tensor, const GoldenBounds& bounds);

}  // namespace kv8::eval
