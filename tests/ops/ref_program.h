#pragma once
// A few records over f64 tensors, run by the reference backend: for tests that look at chains of operators.

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "ops/op.h"

namespace millrace::ops::cases {

class RefProgram {
public:
    using Id = int;

    /// f64 [k, g, rows, cols] holding `values`, or NaN when none are given.
    Id tensor(int k, int g, int rows, int cols, std::vector<double> values = {});
    /// The same with uniform numbers in [low, high).
    Id random(int k, int g, int rows, int cols, double low, double high);
    Id indices(int k, int rows, std::vector<std::int32_t> values);
    Id bytes(int k, int g, int rows, int cols);
    /// Indices of one member as a matrix of their own, in the same memory.
    Id integer_matrix(Id of, int rows, int cols);
    /// Rows and columns of a tensor as an operand of its own, in the same memory.
    Id window(Id of, int row, int rows, int col, int cols);
    Id states(std::vector<MemberState> states);
    Id groups(int members, std::vector<GroupState> table);
    Id segments(const std::vector<Segment>& segments);

    void add(const OpDef* op, std::any params, std::initializer_list<std::pair<int, Id>> slots, std::uint32_t accumulate = 0);
    /// Runs the records in order; aborts when the backend refuses one.
    void run();

    std::vector<double>& values(Id id) { return tensors_[static_cast<std::size_t>(id)].reals; }
    std::vector<std::int32_t>& integers(Id id) { return tensors_[static_cast<std::size_t>(id)].integers; }
    MemberState& state(Id id, int member = 0) {
        return tensors_[static_cast<std::size_t>(id)].blocks[static_cast<std::size_t>(member)];
    }
    std::vector<GroupState>& table(Id id) { return tensors_[static_cast<std::size_t>(id)].table; }

    /// Largest distance between `gradient` and central differences of `objective` (evaluated after a run) with respect to
    /// `input`, relative to the largest difference. Every evaluation starts from the values that the tensors have now.
    double gradient_error(Id input, Id gradient, const std::function<double()>& objective);
    /// The same for `count` elements from `first` on.
    double gradient_error(Id input, Id gradient, const std::function<double()>& objective, std::size_t first, std::size_t count);

private:
    struct Tensor {
        tensor::Operand operand;
        std::vector<double> reals;
        std::vector<std::int32_t> integers;
        std::vector<MemberState> blocks;
        std::vector<GroupState> table;
    };
    Tensor& make(int k, int g, int rows, int cols, tensor::DType dtype);
    void restore(const std::deque<Tensor>& from);

    std::deque<Tensor> tensors_;
    std::deque<Record> records_;
    std::vector<Bound> bounds_;
    std::unique_ptr<Backend> backend_;
    std::vector<std::unique_ptr<Kernel>> kernels_;
};

/// A random linear functional of y: dy is its gradient.
std::function<double()> functional(RefProgram& program, RefProgram::Id y, RefProgram::Id dy);

}  // namespace millrace::ops::cases
