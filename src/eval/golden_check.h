// A model's logits and greedy tokens against a golden file written by another implementation.
//
// The file is safetensors: input_ids int32 [T], logits float32 [T, vocab], greedy int32 [N] (the continuation
// that follows input_ids), margin float32 [N] (between the two best logits of each step of it). Other logits
// may lie beside them ("logits_scale_one"); greedy and margin belong to `logits`, and are compared with it
// alone.
//
// A reference that casts a whole model to bfloat16 rounds RoPE's frequencies too, which no engine does when
// it serves; the error grows with the position, to 0.3 standard deviations at 96 tokens. Such a golden file
// is met by an engine with EngineOptions::bf16_rope_frequencies, and by no other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/engine.h"

namespace kv8::eval {

struct GoldenBounds {
  double logit_error = 2e-3;  // largest |logit - golden|, in units of the golden logits' standard deviation
  double margin = 0.02;       // greedy tokens must agree where the golden margin is above this
};

struct GoldenReport {
  std::string logits_tensor;
  int64_t positions = 0;
  double logit_deviation = 0;  // standard deviation of the golden logits
  double max_error = 0;        // in units of it
  double rms_error = 0;        // in units of it
  int64_t worst_position = 0;
  double mean_kl = 0;  // KL(golden || ours), nats, mean over positions
  double max_kl = 0;
  double top1_agreement = 0;           // share of positions whose best token is the same
  bool bf16_rope_frequencies = false;  // of the engine that was checked
  int64_t greedy_tokens = 0;           // steps compared, each after the golden prefix; 0: not compared
  int64_t greedy_agreeing = 0;
  int64_t greedy_failures = 0;  // disagreeing although the margin is above the bound
  bool passed = false;
};

// logits_tensor names the golden logits ("logits"; files of FP8 caches carry others as well).
Expected<GoldenReport> check_golden(engine::Engine& engine, const std::string& golden_file,
                                    const std::string& logits_tensor, const GoldenBounds& bounds);

// The same for a model still to be loaded: first as it is, and if that fails, with RoPE's frequencies rounded
// to bfloat16. The report says which passed; if neither did, it is the first one's.
Expected<GoldenReport> check_golden(const std::string& model, const engine::EngineOptions& options,
                                    const std::string& golden_file, const std::string& logits_tensor,
                                    const GoldenBounds& bounds, std::vector<std::string>& warnings);

}  // namespace kv8::eval
