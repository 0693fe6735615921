#pragma once
// Runs one case on one backend: buffers with guards, poisoned outputs, prepare, run, download.

#include <string>
#include <vector>

#include "base/result.h"
#include "op_case.h"
#include "ops/backend.h"

namespace millrace::ops::cases {

struct Content {
    tensor::DType dtype = tensor::DType::f32;
    std::vector<std::byte> bytes;  ///< elements [K,G,rows,cols] as they lie in memory
    std::vector<MemberState> states;

    [[nodiscard]] std::vector<double> values() const;  ///< none of a state slot
};

struct Outcome {
    SlotList<Content> slots;
    std::string damage;  ///< what the run wrote outside its outputs, empty when nothing
};

/// How the kernels are started: directly, or recorded once with other numbers and then replayed.
enum class Launch : std::uint8_t { eager, replay };

/// The case's record; the buffer of a slot is its number.
Record record_of(const OpCase& op_case, Precision precision);

base::Result<Outcome> run_case(Backend& backend, Precision precision, const OpCase& op_case, std::uint32_t variation = 0,
                               Launch launch = Launch::eager);

/// The same in a test, which fails where the case cannot be run or wrote outside of its operands.
Outcome run(Backend& backend, Precision precision, const OpCase& op_case, std::uint32_t variation = 0,
            Launch launch = Launch::eager);

/// The first difference beyond the case's tolerance for `precision`, empty when there is none.
std::string difference(const OpCase& op_case, Precision precision, const Outcome& expected, const Outcome& actual);

/// The first slot whose bytes differ, empty when there is none.
std::string byte_difference(const OpCase& op_case, const Outcome& expected, const Outcome& actual);

/// Member `member` of an outcome.
Outcome member_of(const OpCase& op_case, const Outcome& outcome, int member);

}  // namespace millrace::ops::cases
