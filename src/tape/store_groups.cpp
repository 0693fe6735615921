// The groups of a store's parameters: their segments of the trained arena and their table in device memory.
#include <algorithm>

#include "tape/initial.h"

namespace millrace::tape {

std::int32_t Store::group_named(std::string_view name) {
    const auto found = std::ranges::find(groups_, name, &ParameterGroup::name);
    const auto id = static_cast<std::int32_t>(found - groups_.begin());
    if (found == groups_.end())
        groups_.push_back(
            {std::string(name), name == kFrozen || name == kRunning || name == kSettings, name == kNoDecay ? 0.0f : 1.0f});
    return id;
}

void Store::set_segments() {
    segments_.clear();
    for (const Parameter& p : parameters_) {
        if (p.fixed) continue;
        for (std::size_t i = 0; i < p.group_ids.size(); ++i) {
            const auto begin = static_cast<std::int32_t>(p.offset + static_cast<std::int64_t>(i) * p.rows * p.cols);
            if (!segments_.empty()) segments_.back().end = begin;
            if (segments_.empty() || segments_.back().group != p.group_ids[i]) segments_.push_back({begin, p.group_ids[i]});
        }
    }
    if (segments_.empty()) segments_.push_back({});
    segments_.back().end = static_cast<std::int32_t>(trainable_width_);
}

void Store::reset_groups() {
    std::vector<ops::GroupState> table;
    for (int member = 0; member < members(); ++member)
        for (const ParameterGroup& group : groups_) table.push_back(initial_state(group));
    write_groups(table);
}

tensor::View Store::group_table() const {
    return arena_view(kGroups, static_cast<std::int64_t>(groups_.size() * sizeof(ops::GroupState)));
}

tensor::View Store::segments() const {
    tensor::View v = arena_view(kSegments, 2);
    v.k = 1;
    v.rows = static_cast<std::int32_t>(segments_.size());
    return v;
}

std::vector<ops::GroupState> Store::read_groups() {
    std::vector<ops::GroupState> table(groups_.size() * static_cast<std::size_t>(members()));
    read(group_table(), table.data(), table.size() * sizeof(ops::GroupState));
    return table;
}

void Store::write_groups(const std::vector<ops::GroupState>& table) {
    MILLRACE_ASSERT(table.size() == groups_.size() * static_cast<std::size_t>(members()), "one block per member and group");
    write(group_table(), table);
}

void Store::set_trainable(int member, std::string_view group, bool trainable) {
    const auto found = std::ranges::find(groups_, group, &ParameterGroup::name);
    MILLRACE_ASSERT(found != groups_.end() && !found->fixed, "no group that can be trained: " + std::string(group));
    MILLRACE_ASSERT(member >= 0 && member < members(), "no such member");
    std::vector<ops::GroupState> table = read_groups();
    table[static_cast<std::size_t>(member) * groups_.size() + static_cast<std::size_t>(found - groups_.begin())].trainable =
        trainable ? 1 : 0;
    write_groups(table);
}

}  // namespace millrace::tape
