#include "ref_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/philox.h"

namespace millrace::ops::cases {

RefProgram::Tensor& RefProgram::make(int k, int g, int rows, int cols, tensor::DType dtype) {
    Tensor& made = tensors_.emplace_back();
    made.operand = {nullptr, dtype, k, g, rows, cols, std::int64_t{g} * rows * cols, std::int64_t{rows} * cols, cols};
    return made;
}

RefProgram::Id RefProgram::tensor(int k, int g, int rows, int cols, std::vector<double> values) {
    Tensor& made = make(k, g, rows, cols, tensor::DType::f64);
    made.reals = std::move(values);
    if (made.reals.empty()) made.reals.assign(static_cast<std::size_t>(made.operand.count()), std::nan(""));
    MILLRACE_ASSERT(made.reals.size() == static_cast<std::size_t>(made.operand.count()));
    made.operand.data = made.reals.data();
    return static_cast<Id>(tensors_.size()) - 1;
}

RefProgram::Id RefProgram::random(int k, int g, int rows, int cols, double low, double high) {
    std::vector<double> values(static_cast<std::size_t>(k * g * rows * cols));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] =
            low + (high - low) * base::uniform01(base::random_bits(99, static_cast<std::uint32_t>(tensors_.size()), 0, 0, i));
    return tensor(k, g, rows, cols, std::move(values));
}

RefProgram::Id RefProgram::indices(int k, int rows, std::vector<std::int32_t> values) {
    Tensor& made = make(k, 1, rows, 1, tensor::DType::i32);
    made.integers = std::move(values);
    made.operand.data = made.integers.data();
    return static_cast<Id>(tensors_.size()) - 1;
}

RefProgram::Id RefProgram::bytes(int k, int g, int rows, int cols) {
    Tensor& made = make(k, g, rows, cols, tensor::DType::u8);
    made.integers.resize((static_cast<std::size_t>(made.operand.count()) + 3) / 4);
    made.operand.data = made.integers.data();
    return static_cast<Id>(tensors_.size()) - 1;
}

RefProgram::Id RefProgram::integer_matrix(Id of, int rows, int cols) {
    tensor::Operand part = tensors_[static_cast<std::size_t>(of)].operand;
    part.rows = rows;
    part.cols = cols;
    part.stride_row = cols;
    tensors_.emplace_back().operand = part;
    return static_cast<Id>(tensors_.size()) - 1;
}

RefProgram::Id RefProgram::window(Id of, int row, int rows, int col, int cols) {
    tensor::Operand part = tensors_[static_cast<std::size_t>(of)].operand;
    part.data = part.at<double>(0, 0, row) + col;
    part.rows = rows;
    part.cols = cols;
    tensors_.emplace_back().operand = part;
    return static_cast<Id>(tensors_.size()) - 1;
}

RefProgram::Id RefProgram::states(std::vector<MemberState> states) {
    Tensor& made = make(static_cast<int>(states.size()), 1, 1, static_cast<int>(sizeof(MemberState)), tensor::DType::u8);
    made.blocks = std::move(states);
    made.operand.data = made.blocks.data();
    return static_cast<Id>(tensors_.size()) - 1;
}

RefProgram::Id RefProgram::groups(int members, std::vector<GroupState> table) {
    const auto bytes = static_cast<int>(table.size() * sizeof(GroupState));
    Tensor& made = make(members, 1, 1, bytes / members, tensor::DType::u8);
    made.table = std::move(table);
    made.operand.data = made.table.data();
    return static_cast<Id>(tensors_.size()) - 1;
}

RefProgram::Id RefProgram::segments(const std::vector<Segment>& segments) {
    std::vector<std::int32_t> numbers;
    for (const Segment& segment : segments) numbers.insert(numbers.end(), {segment.end, segment.group});
    const auto rows = static_cast<int>(segments.size());
    return integer_matrix(indices(1, 2 * rows, std::move(numbers)), rows, 2);
}

void RefProgram::add(const OpDef* op, std::any params, std::initializer_list<std::pair<int, Id>> slots,
                     std::uint32_t accumulate) {
    Record& record = records_.emplace_back();
    record.op = op;
    record.params = std::move(params);
    record.accumulate = accumulate;
    Bound& bound = bounds_.emplace_back();
    bound.record = &record;
    for (const auto& [slot, id] : slots) {
        const tensor::Operand& o = tensors_[static_cast<std::size_t>(id)].operand;
        bound.operands[static_cast<std::size_t>(slot)] = o;
        record.slots[static_cast<std::size_t>(slot)] = {id,     o.dtype, o.k,        o.g,        o.rows,
                                                        o.cols, 0,       o.stride_k, o.stride_g, o.stride_row};
    }
}

void RefProgram::run() {
    if (kernels_.size() != records_.size()) {
        backend_ = std::move(make_backend(DeviceKind::ref, {})).value();
        kernels_ = std::move(backend_->prepare(bounds_, {})).value();
    }
    for (auto& kernel : kernels_) kernel->run();
}

void RefProgram::restore(const std::deque<Tensor>& from) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {  // element-wise: the records hold pointers to the data
        std::copy(from[i].reals.begin(), from[i].reals.end(), tensors_[i].reals.begin());
        std::copy(from[i].integers.begin(), from[i].integers.end(), tensors_[i].integers.begin());
        std::copy(from[i].blocks.begin(), from[i].blocks.end(), tensors_[i].blocks.begin());
        std::copy(from[i].table.begin(), from[i].table.end(), tensors_[i].table.begin());
    }
}

double RefProgram::gradient_error(Id input, Id gradient, const std::function<double()>& objective) {
    return gradient_error(input, gradient, objective, 0, values(input).size());
}

double RefProgram::gradient_error(Id input, Id gradient, const std::function<double()>& objective, std::size_t first,
                                  std::size_t count) {
    const std::deque<Tensor> start = tensors_;
    run();
    const std::vector<double> analytic = values(gradient);
    constexpr double kStep = 1e-5;
    double error = 0, scale = 1e-2;
    for (std::size_t i = first; i < first + count; ++i) {
        double sides[2];
        for (const int side : {0, 1}) {
            restore(start);
            values(input)[i] += side == 0 ? -kStep : kStep;
            run();
            sides[side] = objective();
        }
        const double numeric = (sides[1] - sides[0]) / (2 * kStep);
        scale = std::max(scale, std::fabs(numeric));
        error = std::isnan(numeric - analytic[i]) ? std::numeric_limits<double>::infinity()
                                                  : std::max(error, std::fabs(numeric - analytic[i]));
    }
    restore(start);
    return error / scale;
}

std::function<double()> functional(RefProgram& program, RefProgram::Id y, RefProgram::Id dy) {
    return [&program, y, dy] {
        const auto &left = program.values(y), &right = program.values(dy);
        return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
    };
}

}  // namespace millrace::ops::cases
