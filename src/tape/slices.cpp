#include "tape/slices.h"

#include <algorithm>
#include <cstring>

#include "tape/initial.h"

namespace millrace::tape {
namespace {

/// The arena of fixed parameters, as one row per member; absent when there are none.
tensor::View fixed_arena(const Store& store) {
    const std::vector<Parameter>& all = store.parameters();
    const auto found = std::ranges::find_if(all, &Parameter::fixed);
    if (found == all.end()) return {};
    tensor::View view = store.parameter(static_cast<ParameterId>(found - all.begin()));
    view.offset = 0;
    view.cols = static_cast<std::int32_t>(view.stride_k);
    view.rows = view.g = 1;
    return view;
}

}  // namespace

MemberSlices::MemberSlices(Store& store) : store_(store), parts_(kCount) {
    MILLRACE_ASSERT(store.parameter_arena().dtype == tensor::DType::f32, "slices are of f32 masters");
    const tensor::View views[kCount] = {store.parameter_arena(), store.first_moment(), store.second_moment(), store.copy16(),
                                        fixed_arena(store),      store.group_table(),  store.state()};
    for (int i = 0; i < kCount; ++i) {
        Part& part = parts_[static_cast<std::size_t>(i)];
        part.view = views[i];
        part.at = bytes_;
        if (views[i].present()) part.bytes = static_cast<std::size_t>(views[i].stride_k) * tensor::size_of(views[i].dtype);
        bytes_ += static_cast<std::size_t>(align(static_cast<std::int64_t>(part.bytes), 64));
    }
}

tensor::View MemberSlices::of_member(const Part& part, int member) {
    tensor::View view = part.view;
    view.offset += member * view.stride_k;
    view.k = 1;
    return view;
}

void MemberSlices::read(int member, std::byte* slice) const {
    for (const Part& part : parts_)
        if (part.bytes > 0) store_.read(of_member(part, member), slice + part.at, part.bytes);
}

void MemberSlices::write(int member, const std::byte* slice) const {
    for (const Part& part : parts_)
        if (part.bytes > 0) store_.write(of_member(part, member), slice + part.at, part.bytes);
}

void MemberSlices::write_weights(int member, const std::byte* slice) const {
    for (const Name name : {kTrained, kCopy16, kFixed})
        if (const Part& part = parts_[name]; part.bytes > 0) store_.write(of_member(part, member), slice + part.at, part.bytes);
}

void MemberSlices::copy(int from, int to) const {
    if (from == to) return;
    for (int i = 0; i < kState; ++i) {
        const Part& part = parts_[static_cast<std::size_t>(i)];
        if (part.bytes == 0) continue;
        const std::byte* source = store_.address(part.view.buffer) + static_cast<std::size_t>(from) * part.bytes;
        store_.write(of_member(part, to), source, part.bytes);
    }
}

void MemberSlices::draw(const Store& declared, const ops::MemberState& state, std::byte* slice, unsigned threads) const {
    const auto floats = [&](Name name) {
        const Part& part = parts_[name];
        return std::span<float>(reinterpret_cast<float*>(slice + part.at), part.bytes / sizeof(float));
    };
    Copies copies{store_.options().precision};
    if (const Part& part = parts_[kCopy16]; part.bytes > 0)
        copies.values = {reinterpret_cast<std::uint16_t*>(slice + part.at), part.bytes / sizeof(std::uint16_t)};
    draw_slice(declared.parameters(), false, 0, state.seed, floats(kTrained), copies, threads);
    draw_slice(declared.parameters(), true, 0, state.seed, floats(kFixed), {}, threads);
    std::vector<ops::GroupState> groups;
    for (const ParameterGroup& group : declared.groups()) groups.push_back(initial_state(group));
    MILLRACE_ASSERT(groups.size() * sizeof(ops::GroupState) == parts_[kGroups].bytes, "the groups of another model");
    std::memcpy(slice + parts_[kGroups].at, groups.data(), parts_[kGroups].bytes);
    std::memcpy(slice + parts_[kState].at, &state, sizeof state);
}

ops::MemberState MemberSlices::read_state(int member) const {
    ops::MemberState state;
    store_.read(of_member(parts_[kState], member), &state, sizeof state);
    return state;
}

void MemberSlices::write_state(int member, const ops::MemberState& state) const {
    store_.write(of_member(parts_[kState], member), &state, sizeof state);
}

std::vector<ops::GroupState> MemberSlices::read_groups(int member) const {
    std::vector<ops::GroupState> groups(store_.groups().size());
    store_.read(of_member(parts_[kGroups], member), groups.data(), parts_[kGroups].bytes);
    return groups;
}

void MemberSlices::write_groups(int member, const std::vector<ops::GroupState>& groups) const {
    MILLRACE_ASSERT(groups.size() == store_.groups().size(), "one block per group");
    store_.write(of_member(parts_[kGroups], member), groups.data(), parts_[kGroups].bytes);
}

}  // namespace millrace::tape
