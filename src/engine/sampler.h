// From logits to a token: greedy, or temperature with top-k, top-p and min-p, after a repetition penalty.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "core/error.h"

namespace kv8::engine {

// Applied in this order: repetition penalty, temperature, top-k, top-p, min-p; each on what the one before
// left.
struct SamplingParams {
  float temperature = 0.0F;  // 0: greedy
  int top_k = 0;             // keep the k most probable; 0: all
  float top_p = 1.0F;        // keep the fewest whose probabilities reach p
  float min_p = 0.0F;        // keep those at least min_p times as probable as the best
  float repetition_penalty =
      1.0F;  // divides positive, multiplies negative logits of tokens seen (Keskar et al. 2019)
  uint64_t seed = 0;
};

// invalid_argument names the field and its range.
Status validate(const SamplingParams& params);

// One per sequence: it owns the random state, so a sequence's answer depends on its seed alone.
class Sampler {
 public:
  explicit Sampler(const SamplingParams& params);

  // Tells it of tokens that the repetition penalty counts: the prompt, and each token drawn.
  void observe(int32_t token);
  // logits [vocab], finite or -inf. Ties go to the lower token id.
  int32_t sample(std::span<const float> logits);

 private:
  double next_uniform();  // in [0, 1)

  struct Candidate {
    float logit;
    int32_t token;
  };

  SamplingParams params_;
  uint64_t random_state_;
  std::unordered_set<int32_t> seen_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace kv8::engine
