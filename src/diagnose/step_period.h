#pragma once
// Which of several periods is the step: programs also return after ten steps (they log) and after a hundred (they evaluate).

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "record/periodicity.h"

namespace millrace::diagnose {

/// Whether a kernel changes parameters: optimizers of the usual frameworks, by name.
bool updates_parameters(std::string_view kernel);

/// What is known of an element: bits.
constexpr char kUpdates = 1;     ///< updates_parameters()
constexpr char kWholeStep = 2;   ///< and much else was launched with it: a graph
constexpr char kMultiplies = 4;  ///< a matrix product, say: no optimizer has these

/// The period of `sequence`, or a shorter one that updates parameters in each of its repetitions; `marks` has one entry per
/// element. Micro-batches, which update nothing, are no steps. Without updates it is record::find_period().
std::optional<record::Period> find_step_period(std::span<const std::uint64_t> sequence, std::span<const char> marks);

}  // namespace millrace::diagnose
