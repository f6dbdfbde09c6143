// What the attention kernels get, as they want it: checked, scales folded, plan and workspace taken apart.
#pragma once

#include <cstdint>

#include "attention/cuda/plan.h"
#include "kv8/attention.h"

namespace kv8::attention::cuda::sm90 {

struct KernelParams {
  const PlanHeader* plan;
  const DecodeSequence* decode_sequences;
  const DecodeStart* decode_starts;
  const PrefillBlock* prefill_blocks;

  const Sequence* sequences;
  const int32_t* page_tables;
  int64_t page_table_stride;
  const uint8_t* pool;
  int64_t page_stride;   // bytes
  int64_t head_stride;   // bytes
  const float* k_scale;  // [kv_heads] or null; BF16: null
  const float* v_scale;

  const void* q;         // [rows][q_heads][head_dim], e4m3 or bf16
  const float* q_scale;  // [rows][q_heads]; BF16: null
  void* out;             // [rows][q_heads][head_dim]
  bool out_f32;
  int q_heads;
  int kv_heads;
  int group;  // q_heads / kv_heads

  // Scores are in units of 2^x: softmax_scale and the cap carry a factor log2(e).
  float score_scale;
  float soft_cap;  // 0: none
  float inverse_soft_cap;
  const float* sinks;  // [q_heads] or null, natural units
  int32_t window;      // INT32_MAX: none

  uint32_t* prefill_counters;
  uint32_t* decode_arrivals;
  float* decode_partials;
};

// Stands for "no key seen": far below any score, yet finite, so that differences of two of them are 0 and not
// NaN.
constexpr float kNothing = -1e30F;
// P is 2^(score - maximum + 8): the top of e4m3's range is used, and its subnormals begin 2^-14 below the
// maximum.
constexpr float kProbabilityExponent = 8.0F;
constexpr float kProbabilityScale = 256.0F;
constexpr float kLog2e = 1.4426950408889634F;

}  // namespace kv8::attention::cuda::sm90
