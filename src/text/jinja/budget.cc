#include "text/jinja/budget.h"

#include <utility>

#include "text/jinja/failure.h"

namespace kv8::text::jinja {

namespace {

Budget*& current_budget() {
  thread_local Budget* budget = nullptr;
  return budget;
}

}  // namespace

void Budget::step(int64_t count) {
  steps_ += count;
  if (steps_ > limits_.max_steps) fail("the template needs more than {} steps", limits_.max_steps);
}

void Budget::acquire(size_t bytes) {
  if (bytes > limits_.max_memory_bytes || bytes_ > limits_.max_memory_bytes - bytes) {
    fail("the template needs more than {} bytes of memory", limits_.max_memory_bytes);
  }
  bytes_ += bytes;
}

void Budget::output(size_t total) const {
  if (total > limits_.max_output_bytes) {
    fail("the template writes more than {} bytes", limits_.max_output_bytes);
  }
}

void Budget::enter() {
  if (depth_ >= limits_.max_depth) fail("the template nests more than {} levels deep", limits_.max_depth);
  ++depth_;
}

Budget* Budget::current() {
  return current_budget();
}

Budget::Use::Use(Budget& budget) : previous_(std::exchange(current_budget(), &budget)) {}
Budget::Use::~Use() {
  current_budget() = previous_;
}

Charge::Charge(size_t bytes) : budget_(Budget::current()), bytes_(bytes) {
  if (budget_ != nullptr) budget_->acquire(bytes);
}
Charge::~Charge() {
  if (budget_ != nullptr) budget_->release(bytes_);
}

void spend_steps(int64_t count) {
  if (Budget* budget = Budget::current()) budget->step(count);
}

void spend_pass(size_t bytes) {
  if (bytes >= kBytesPerStep) spend_steps(static_cast<int64_t>(bytes / kBytesPerStep));
}

void spend_copies(size_t values) {
  constexpr size_t kValuesPerStep = 8;
  if (values >= kValuesPerStep) spend_steps(static_cast<int64_t>(values / kValuesPerStep));
}

void check_fits(size_t bytes) {
  if (Budget* budget = Budget::current()) {
    budget->acquire(bytes);
    budget->release(bytes);
  }
}

size_t checked_size(size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
  check_fits(bytes);
  return bytes;
}

}  // namespace kv8::text::jinja
