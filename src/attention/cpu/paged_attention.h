// Attention on the CPU, every mode, over paged caches.
#pragma once

#include "attention/attention.h"
#include "attention/cpu/attention_problem.h"
#include "core/thread_pool.h"

namespace kv8::attention::cpu {

// Writes every row of problem.out. The modes that emulate Hopper (tile, two_level, single) need an FP8 cache
// and a head_dim that is a multiple of 32; otherwise: invalid_argument, and the message says which mode would
// work. Work is split over (sequence, KV head, block of queries) and, for few queries, over the keys as well.
Status paged_attention(const AttentionProblem& problem, Accumulate mode, ThreadPool& pool);

}  // namespace kv8::attention::cpu
