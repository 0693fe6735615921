#include "op_case.h"

#include <cmath>
#include <cstddef>
#include <list>
#include <span>
#include <string>
#include <utility>

#include "base/philox.h"

namespace millrace::ops::cases {
namespace {

std::uint64_t hash_of(const std::string& text) {  // FNV-1a: the same everywhere, unlike std::hash
    std::uint64_t hash = 1469598103934665603ull;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    return hash;
}

double rounded(Element element, double value) {
    switch (element) {
        case Element::real:
        case Element::bf16: return tensor::from_bf16(tensor::to_bf16(static_cast<float>(value)));
        case Element::f16: return tensor::from_f16(tensor::to_f16(static_cast<float>(value)));
        case Element::stat:
        case Element::f32: return static_cast<float>(value);
        case Element::f64: return value;
        case Element::i32:
        case Element::u8:
        case Element::state: return std::floor(value);
    }
    return value;
}

}  // namespace

tensor::DType dtype_of(Element element, Precision precision) {
    using tensor::DType;
    switch (element) {
        case Element::real:
            return precision == Precision::f64    ? DType::f64
                   : precision == Precision::f32  ? DType::f32
                   : precision == Precision::bf16 ? DType::bf16
                                                  : DType::f16;
        case Element::stat: return precision == Precision::f64 ? DType::f64 : DType::f32;
        case Element::i32: return DType::i32;
        case Element::u8:
        case Element::state: return DType::u8;
        case Element::bf16: return DType::bf16;
        case Element::f16: return DType::f16;
        case Element::f32: return DType::f32;
        case Element::f64: return DType::f64;
    }
    return DType::f32;
}

OpCase& OpCase::slot(int index, Element element, int k, int g, int rows, int cols, Values values, Layout layout) {
    Slot& slot = slots[static_cast<std::size_t>(index)];
    slot.present = true;
    slot.element = element;
    slot.k = k;
    slot.g = g;
    slot.rows = rows;
    slot.cols = cols;
    slot.values = std::move(values);
    slot.layout = layout;
    return *this;
}

OpCase& OpCase::state(int index) {
    return slot(index, Element::state, static_cast<int>(states.size()), 1, 1, static_cast<int>(sizeof(MemberState)), poison());
}

OpCase& OpCase::groups(int index, const std::vector<GroupState>& table) {
    std::vector<double> bytes;
    for (const std::byte byte : std::as_bytes(std::span(table))) bytes.push_back(std::to_integer<int>(byte));
    return slot(index, Element::u8, members, 1, 1, static_cast<int>(bytes.size()) / members, given(bytes));
}

OpCase& OpCase::segments(int index, const std::vector<Segment>& segments) {
    std::vector<double> numbers;
    for (const Segment& segment : segments) {
        numbers.push_back(segment.end);
        numbers.push_back(segment.group);
    }
    return slot(index, Element::i32, 1, 1, static_cast<int>(segments.size()), 2, given(numbers));
}

OpCase member_of(const OpCase& op_case, int member) {
    OpCase one = op_case;
    for (std::size_t s = 0; s < one.slots.size(); ++s) {
        Slot& slot = one.slots[s];
        if (slot.k != op_case.members) continue;
        slot.k = 1;
        slot.first_member = member;
    }
    if (!one.states.empty()) one.states = {op_case.states[static_cast<std::size_t>(member)]};
    one.members = 1;
    return one;
}

namespace {

std::vector<double> drawn_values(const OpCase& op_case, const Slot& slot, int slot_index, std::uint32_t variation) {
    const Values& values = slot.values;
    const std::int64_t of_member = std::int64_t{slot.g} * slot.rows * slot.cols, first = slot.first_member * of_member;
    const std::uint64_t seed = hash_of(op_case.name);
    base::Philox4 block{};
    const auto value = [&](std::int64_t number) {
        if (number == first || number % 4 == 0)
            block = base::random_block(seed, static_cast<std::uint32_t>(slot_index), variation, 0,
                                       static_cast<std::uint32_t>(number / 4));
        if (number == values.special_at) return values.special;
        const std::uint32_t bits = block.v[number % 4];
        const double u = base::uniform01(bits);
        switch (values.kind) {
            case Values::Kind::poison: break;
            case Values::Kind::uniform: return rounded(slot.element, values.low + u * (values.high - values.low));
            case Values::Kind::away:
                return rounded(slot.element, (bits & 1u ? 1 : -1) * (values.low + u * (values.high - values.low)));
            case Values::Kind::integers: return values.low + std::floor(u * (values.high - values.low + 1));
            case Values::Kind::given: return values.given[static_cast<std::size_t>(number) % values.given.size()];
        }
        return std::nan("");
    };
    std::vector<double> all(static_cast<std::size_t>(slot.k * of_member));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(first + static_cast<std::int64_t>(i));
    return all;
}

/// What the numbers of a slot depend on.
struct Drawn {
    int slot = 0;
    std::uint32_t variation = 0;
    Element element = Element::real;
    int first_member = 0;
    std::vector<int> shape;
    Values values;
    bool operator==(const Drawn&) const = default;
};

}  // namespace

const std::vector<double>& initial_values(const OpCase& op_case, int slot_index, std::uint32_t variation) {
    static std::string name;
    static std::list<std::pair<Drawn, std::vector<double>>> kept;
    if (name != op_case.name) kept.clear();
    name = op_case.name;
    const Slot& slot = op_case.slots[static_cast<std::size_t>(slot_index)];
    const Drawn wanted{slot_index, variation, slot.element, slot.first_member, {slot.k, slot.g, slot.rows, slot.cols},
                       slot.values};
    for (const auto& [drawn, values] : kept)
        if (drawn == wanted) return values;
    return kept.emplace_back(wanted, drawn_values(op_case, slot, slot_index, variation)).second;
}

std::vector<MemberState> sample_states(int members) {
    std::vector<MemberState> states(static_cast<std::size_t>(members));
    for (std::size_t m = 0; m < states.size(); ++m) {
        MemberState& state = states[m];
        const auto number = static_cast<std::uint32_t>(m);
        state.seed = 0x9E3779B97F4A7C15ull + m * 7919;
        state.base_lr = 0.01f * static_cast<float>(m + 1);
        state.weight_decay = 0.05f;
        state.dropout_scale = 1 + 0.25f * static_cast<float>(m);
        state.step = 3 + number;
        state.micro = number % 2;
        state.epoch = 1 + number;
        state.position = 4 * number;
        state.eval_position = 2 + number;
        state.applied = 2 + number;
        state.good_steps = 1 + number;
        state.loss_scale = 4 * static_cast<float>(1u << number % 8);
        state.lr = 0.02f * static_cast<float>(m + 1);
        state.grad_norm = 1.5f;
        state.rows = 11 + number;
        state.correct = 4;
        state.loss = 2.25;
        state.penalty = 0.125;
    }
    return states;
}

std::vector<GroupState> sample_groups(int members, int count) {
    std::vector<GroupState> table;
    for (int m = 0; m < members; ++m)
        for (int g = 0; g < count; ++g)
            table.push_back({.applied = static_cast<std::uint32_t>(2 + m + 3 * g),
                             .bias1 = static_cast<float>(1 - std::pow(0.9, 3 + m + 3 * g)),
                             .bias2 = static_cast<float>(1 - std::pow(0.999, 3 + m + 3 * g))});
    return table;
}

const std::vector<OpCase>& op_cases() {
    static const std::vector<OpCase> cases = [] {
        std::vector<OpCase> list;
        add_dense_cases(list);
        add_linear_cases(list);
        add_pointwise_cases(list);
        add_row_cases(list);
        add_loss_cases(list);
        add_optimizer_cases(list);
        add_data_cases(list);
        add_step_cases(list);
        add_part_cases(list);
        add_gru_cases(list);
        add_flow_cases(list);
        add_flow_end_cases(list);
        add_text_cases(list);
        add_vocabulary_cases(list);
        add_attention_cases(list);
        add_conv_cases(list);
        add_mix_cases(list);
        add_cached_cases(list);
        add_choose_cases(list);
        return list;
    }();
    return cases;
}

}  // namespace millrace::ops::cases
