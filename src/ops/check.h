#pragma once
// The rule of an operator: which types, shapes and parameters a record may have, the same for all backends. The tape runs it when
// a record is appended, a backend when it prepares one, so that kernels trust what they get.

#include <initializer_list>
#include <optional>

#include "ops/op.h"

namespace millrace::ops {

/// Types as contracts name them: a record's first real slot says what `real` is in it, and `stat` follows. floating: real or
/// stat; half: bf16 or f16; number: all but u8.
enum class Type : std::uint8_t { real, stat, floating, half, number, f16, i32, u8 };

struct Shape {
    std::int32_t k = 0, g = 0, rows = 0, cols = 0;
    friend bool operator==(const Shape&, const Shape&) = default;
};

/// What a rule asks of a record. The first wrong answer is kept, a missing slot before a wrong shape. A slot that is there
/// although no rule asked for it is wrong, too.
class Checker {
public:
    Checker(const Record& record, std::span<const tensor::DType> reals);

    [[nodiscard]] const tensor::View& operator[](int slot) const { return record_.slots[static_cast<std::size_t>(slot)]; }
    [[nodiscard]] Shape shape(int slot) const;  ///< zeros when the slot is absent
    template <class P>
    const P& params() {
        static const P none;
        const P* found = std::any_cast<P>(&record_.params);
        that(found != nullptr, "the parameters are of another type");
        return found != nullptr ? *found : none;
    }

    /// The slots must be there, with this type and shape; allow: where they are there, they must have them.
    Checker& require(std::initializer_list<int> slots, Type type, Shape shape) { return allow(slots, type, shape).needs(slots); }
    Checker& allow(std::initializer_list<int> slots, Type type, Shape wanted);
    Checker& needs(std::initializer_list<int> slots, bool condition = true);
    Checker& state(int slot, int k, bool needed = true);
    Checker& groups(int slot, int k);
    Checker& segments(int slot);
    Checker& dropout(float probability, int state_slot, int k);  ///< in [0, 1); the state is needed when there is some
    Checker& that(bool condition, const char* message);

    /// Of the rule, and of what holds for the records of all operators.
    [[nodiscard]] base::Status run();

private:
    [[nodiscard]] bool has_type(Type type, tensor::DType dtype);
    [[nodiscard]] const char* name_of(Type type) const;
    void refuse(int slot, const std::string& problem);

    const Record& record_;
    std::span<const tensor::DType> reals_;
    std::optional<tensor::DType> real_, stat_;
    std::uint32_t asked_ = 0;
    bool missing_ = false;
    std::string problem_;
};

constexpr tensor::DType kAnyReal[] = {tensor::DType::f64, tensor::DType::f32, tensor::DType::bf16, tensor::DType::f16};
/// What is wrong with a record, with its layer, slots and shapes; `reals`: what `real` may be where it shall run.
base::Status check_record(const Record& record, std::span<const tensor::DType> reals = kAnyReal);

}  // namespace millrace::ops
