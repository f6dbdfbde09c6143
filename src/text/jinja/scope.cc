#include "text/jinja/scope.h"

#include <algorithm>

namespace kv8::text::jinja {

namespace {

constexpr size_t kScopesPerStep = 8;
constexpr size_t kVariableBytes = sizeof(std::pair<std::string, Value>) * 2;

}  // namespace

const Value* Variables::find(std::string_view name) const {
  spend_copies(values_.size());
  const auto it =
      std::find_if(values_.begin(), values_.end(), [&](const auto& entry) { return entry.first == name; });
  return it == values_.end() ? nullptr : &it->second;
}

void Variables::set(std::string_view name, Value value) {
  spend_copies(values_.size());
  const auto it =
      std::find_if(values_.begin(), values_.end(), [&](const auto& entry) { return entry.first == name; });
  if (it != values_.end()) {
    it->second = std::move(value);
    return;
  }
  if (budget_ != nullptr) budget_->acquire(kVariableBytes);
  values_.emplace_back(name, std::move(value));
}

void Variables::clear() {
  if (budget_ != nullptr) budget_->release(kVariableBytes * values_.size());
  auto values = std::exchange(values_, {});  // a value's end may come back here
}

const Value* Scope::find(std::string_view name) const {
  size_t scopes = 0;
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
    if (++scopes % kScopesPerStep == 0) spend_steps(1);
    if (const Value* value = scope->variables_.find(name)) return value;
  }
  return nullptr;
}

}  // namespace kv8::text::jinja
