#pragma once
// One table of operator cases from which the tests of every backend are generated: against ref, twice, member by member, captured
// against eager, with guards around and between everything that belongs to a view.

#include <cstdint>
#include <string>
#include <vector>

#include "ops/pointwise/pointwise.h"

namespace millrace::ops::cases {

/// Which type `real` stands for; `stat` is f64 with f64 and f32 otherwise.
enum class Precision : std::uint8_t { f64, f32, bf16, f16 };
enum class Element : std::uint8_t { real, stat, i32, u8, state, bf16, f16, f32, f64 };
tensor::DType dtype_of(Element element, Precision precision);

/// What an operand holds before the run. Numbers depend on the case's name, the slot and the element alone; those of `real`
/// operands are representable in bf16 (and in f16, but for the smallest) and those of `stat` operands in f32, so that every
/// backend starts from the same values.
struct Values {
    enum class Kind : std::uint8_t { poison, uniform, away, integers, given };
    Kind kind = Kind::poison;
    double low = 0, high = 0;
    std::vector<double> given;     ///< used cyclically
    std::int64_t special_at = -1;  ///< this element [K,G,rows,cols order] is `special` instead
    double special = 0;

    bool operator==(const Values&) const = default;
    [[nodiscard]] Values with(std::int64_t element, double value) const {
        Values copy = *this;
        copy.special_at = element;
        copy.special = value;
        return copy;
    }
};
inline Values uniform(double low, double high) { return {Values::Kind::uniform, low, high, {}}; }
inline Values constant(double value) { return uniform(value, value); }
/// Either sign, magnitude in [low, high]: keeps clear of the kink of relu.
inline Values away(double low, double high) { return {Values::Kind::away, low, high, {}}; }
/// Whole numbers low .. high, both included.
inline Values integers(double low, double high) { return {Values::Kind::integers, low, high, {}}; }
inline Values given(std::vector<double> values) { return {Values::Kind::given, 0, 0, std::move(values)}; }
inline Values poison() { return {}; }

/// Where the view lies in its buffer.
struct Layout {
    int left = 0, right = 0;     ///< columns of the buffer on both sides of the view
    bool groups_in_row = false;  ///< the groups stand side by side in one wide row: concatenation by views
    bool shared_group = false;   ///< stride_g = 0: all groups read one matrix
};
constexpr Layout kDense{};
constexpr Layout kWindow{3, 2, false, false};
constexpr Layout kConcat{5, 1, true, false};
constexpr Layout kShared{0, 0, false, true};

struct Slot {
    bool present = false;
    Element element = Element::real;
    int k = 1, g = 1, rows = 1, cols = 1;
    Values values;
    Layout layout;
    int same_memory_as = -1;   ///< the view of this other slot, for operators that work in place
    bool compare = true;       ///< false: scratch, undefined content
    bool exact_zeros = false;  ///< dropout: zeros must stand at the same places
    double slack = 1;          ///< factor on the case's tolerance
    int first_member = 0;      ///< set by member_of: member 0 of this slot was this one
    int clock_every = 0;       ///< not 0: the last eight of every so many columns hold a clock, which is read as zero
};

struct OpCase {
    std::string name;  ///< "dense_forward/batch_train_relu_drop/K2_G3_B7_In13_Out5"
    const OpDef* op = &fill::kDef;
    std::any params;
    SlotList<Slot> slots;
    std::vector<MemberState> states;  ///< content of the `state` slot, one per member
    std::uint32_t accumulate = 0;
    int members = 1;
    int repeats = 1;                                     ///< runs in a row before looking
    bool splits = true;                                  ///< false: members share an output, K runs cannot be compared with one
    bool makes_nan = false;                              ///< outputs may be non-finite
    double f32_tolerance = 2e-5, bf16_tolerance = 2e-2;  ///< of the largest value of the slot; 0: exact. f16: a quarter of bf16's
    double outliers = 0;  ///< share of a slot's elements that may differ (rounding of an augmented coordinate)

    OpCase& slot(int index, Element element, int k, int g, int rows, int cols, Values values, Layout layout = kDense);
    /// A state slot with one block per entry of `states`.
    OpCase& state(int index);
    /// A groups slot, [K][G], and a segments slot.
    OpCase& groups(int index, const std::vector<GroupState>& table);
    OpCase& segments(int index, const std::vector<Segment>& segments);
    OpCase& accumulates(int index) {
        accumulate |= 1u << index;
        return *this;
    }
};

/// The case with member `member` alone.
OpCase member_of(const OpCase& op_case, int member);
/// The elements of a slot as they stand before the run, [K,G,rows,cols]; `variation` gives other numbers of the same kind. Kept
/// until another case is asked for: a case runs many times.
const std::vector<double>& initial_values(const OpCase& op_case, int slot, std::uint32_t variation);

/// Blocks that differ in seed, step, rates and progress.
std::vector<MemberState> sample_states(int members);

/// [K][count] blocks that differ in progress; factors 1, all trainable.
std::vector<GroupState> sample_groups(int members, int count);

// The table, in parts.
void add_dense_cases(std::vector<OpCase>& cases);
void add_linear_cases(std::vector<OpCase>& cases);
void add_pointwise_cases(std::vector<OpCase>& cases);
void add_row_cases(std::vector<OpCase>& cases);
void add_loss_cases(std::vector<OpCase>& cases);
void add_optimizer_cases(std::vector<OpCase>& cases);
void add_data_cases(std::vector<OpCase>& cases);
void add_step_cases(std::vector<OpCase>& cases);
void add_gru_cases(std::vector<OpCase>& cases);
void add_flow_cases(std::vector<OpCase>& cases);
void add_flow_end_cases(std::vector<OpCase>& cases);
void add_text_cases(std::vector<OpCase>& cases);
void add_vocabulary_cases(std::vector<OpCase>& cases);
void add_attention_cases(std::vector<OpCase>& cases);
void add_conv_cases(std::vector<OpCase>& cases);
void add_mix_cases(std::vector<OpCase>& cases);
void add_cached_cases(std::vector<OpCase>& cases);
void add_choose_cases(std::vector<OpCase>& cases);
void add_part_cases(std::vector<OpCase>& cases);

/// Dense layers and their gradients for every shape of tiles.
std::vector<OpCase> tile_cases();
/// linear_dgrad and dense_backward behind it, whose dy is dx: one kernel of tiles.
struct PairCase {
    OpCase dgrad, backward;
};
std::vector<PairCase> pair_cases();
/// Heads that occupy a GPU several times over, too large for the reference: kernels are held against other kernels.
std::vector<OpCase> large_vocabulary_cases();

/// All of them, built once.
const std::vector<OpCase>& op_cases();

}  // namespace millrace::ops::cases
