#pragma once
// One member of a store as plain bytes: parameters, moments, 16-bit copy, fixed parameters, group table and state, in one layout
// for all stores of the same declarations. Gradients are left out: no step reads those of an earlier one.

#include <cstddef>
#include <vector>

#include "tape/store.h"

namespace millrace::tape {

class MemberSlices {
public:
    /// `store` is borrowed, allocated, and not of f64.
    explicit MemberSlices(Store& store);

    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// All of a member, `bytes()` long. Both wait for the device; pinned memory is faster.
    void read(int member, std::byte* slice) const;
    void write(int member, const std::byte* slice) const;
    /// Of a slice, parameters and running statistics alone.
    void write_weights(int member, const std::byte* slice) const;
    /// Everything but the state, within the device's memory.
    void copy(int from, int to) const;

    /// Puts a member before its first step into `slice`, whose moments are zero already: parameters drawn from state.seed as
    /// `declared` says, which has the parameters and groups of the store. Several threads may draw at once; `threads` as in
    /// draw_slice().
    void draw(const Store& declared, const ops::MemberState& state, std::byte* slice, unsigned threads = 0) const;

    [[nodiscard]] ops::MemberState read_state(int member) const;
    void write_state(int member, const ops::MemberState& state) const;
    [[nodiscard]] std::vector<ops::GroupState> read_groups(int member) const;
    void write_groups(int member, const std::vector<ops::GroupState>& groups) const;

private:
    struct Part {
        tensor::View view;      ///< of member 0, as one row
        std::size_t bytes = 0;  ///< of one member
        std::size_t at = 0;     ///< in a slice
    };
    enum Name { kTrained, kFirst, kSecond, kCopy16, kFixed, kGroups, kState, kCount };
    [[nodiscard]] static tensor::View of_member(const Part& part, int member);

    Store& store_;
    std::vector<Part> parts_;  ///< by Name; absent ones have no bytes
    std::size_t bytes_ = 0;
};

}  // namespace millrace::tape
