#include "train/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>

#include "base/split.h"
#include "base/version.h"
#include "train/lanes_impl.h"
#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

/// How many groups share out the members.
base::Result<int> groups_of(const base::Recipe& recipe, int world) {
    const auto members = static_cast<int>(recipe.integer("members"));
    const std::string& wanted = recipe.text("parallel.members");
    if (wanted == "auto") return std::gcd(members, world);
    int groups = 0;
    const auto end = wanted.data() + wanted.size();
    const bool is_number = std::from_chars(wanted.data(), end, groups).ptr == end;
    if (!is_number || groups < 1 || world % groups != 0 || members % groups != 0)
        return recipe.bad(
            "parallel.members",
            fmt::format("parallel.members = \"{}\", but {} ranks share {} members; \"auto\" or a divisor of both ({} "
                        "and others) would be right",
                        wanted, world, members, std::gcd(members, world)));
    return groups;
}

/// What one rank holds of the run's members.
template <class T>
std::vector<T> part_of(const std::vector<T>& all, int first, int count) {
    if (all.empty()) return {};
    return {all.begin() + first, all.begin() + first + count};
}

class FlatBytes final : public io::ByteSink {
public:
    base::Status write(io::Bytes bytes) override {
        all.insert(all.end(), bytes.begin(), bytes.end());
        return base::ok();
    }
    std::vector<std::byte> all;
};

}  // namespace

base::Result<std::unique_ptr<Ranks>> Ranks::open(comm::Group& world, const base::Recipe& recipe) {
    std::unique_ptr<Ranks> ranks(new Ranks(world));
    const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(recipe.duration("parallel.timeout"));
    ranks->watchdog_ = std::make_unique<comm::Watchdog>(world, timeout);
    ranks->members_ = static_cast<int>(recipe.integer("members"));
    const auto groups = groups_of(recipe, world.size());
    MILLRACE_TRY(comm::Group::agree(world, groups.ok() ? base::ok() : base::Status(groups.error())));
    MILLRACE_TRY(ranks->all_equal(base::version(), "version of millrace"));
    MILLRACE_TRY(ranks->all_equal(recipe.to_toml(), "recipe"));
    ranks->groups_ = *groups;
    MILLRACE_SET(ranks->data_, world.split(world.rank() / (world.size() / ranks->groups_)));
    return ranks;
}

std::string Ranks::text() const {
    const int data = data_->size();
    if (data == 1) return fmt::format("{}, each trains {} of the {} members, without messages", world_.size(), own(), members_);
    const std::string rows = fmt::format("{} share the rows of a step", data);
    if (groups_ == 1) return fmt::format("{}, which share the rows of a step", world_.size());
    return fmt::format("{}: {} groups with {} of the {} members each; in each group {}", world_.size(), groups_, own(), members_,
                       rows);
}

base::Result<base::Recipe> Ranks::own_part(const base::Recipe& recipe) const {
    if (groups_ == 1) return recipe;
    return member_part(recipe, first(), own());
}

RunState Ranks::own_part(const RunState& state) const {
    RunState part = state;
    if (groups_ == 1 || state.members.empty()) return part;
    part.members = part_of(state.members, first(), own());
    part.groups = part_of(state.groups, first(), own());
    part.epoch_sums.members = part_of(state.epoch_sums.members, first(), own());
    return part;
}

void Ranks::keep_own(io::LoadedCheckpoint& checkpoint) const {
    if (groups_ == 1 || static_cast<int>(checkpoint.members.size()) != members_) return;
    checkpoint.members.erase(checkpoint.members.begin() + first() + own(), checkpoint.members.end());
    checkpoint.members.erase(checkpoint.members.begin(), checkpoint.members.begin() + first());
}

base::Result<StepSums> Ranks::all_sums(const StepSums& own_sums) const {
    StepSums sums = own_sums;
    if (groups_ > 1) MILLRACE_SET(sums.members, all_members(own_sums.members));
    return sums;
}

base::Result<std::vector<std::vector<NamedGroup>>> Ranks::all_groups(
    const std::vector<std::vector<NamedGroup>>& own_groups) const {
    if (groups_ == 1 || own_groups.empty()) return own_groups;
    const std::size_t each = own_groups.front().size();
    std::vector<ops::GroupState> flat;
    for (const auto& member : own_groups)
        for (const NamedGroup& group : member) flat.push_back(group.state);
    MILLRACE_LET(states, all_members(flat));
    std::vector<std::vector<NamedGroup>> all(static_cast<std::size_t>(members_), own_groups.front());
    for (std::size_t i = 0; i < states.size(); ++i) all[i / each][i % each].state = states[i];
    return all;
}

base::Result<std::vector<io::MemberTensors>> Ranks::all_weights(const std::vector<io::MemberTensors>& own_weights) {
    if (groups_ == 1) return own_weights;
    const auto each_tensor = [](auto& members, auto visit) -> base::Status {
        for (auto& member : members)
            for (auto* tensors : {&member.model, &member.optimizer})
                for (auto& tensor : *tensors) MILLRACE_TRY(visit(tensor));
        return base::ok();
    };
    FlatBytes flat;
    MILLRACE_TRY(each_tensor(own_weights, [&](const io::TensorView& tensor) {
        return tensor.pour ? tensor.pour(flat) : flat.write({tensor.data, tensor.bytes});
    }));
    std::vector<io::MemberTensors> all;
    received_.resize(static_cast<std::size_t>(groups_));
    for (int group = 0; group < groups_; ++group) {
        std::vector<std::byte>& bytes = received_[static_cast<std::size_t>(group)];
        const int leader = group * data_->size();
        if (world_.rank() == leader) bytes = flat.all;
        bytes.resize(flat.all.size());
        MILLRACE_TRY(world_.broadcast(bytes.data(), bytes.size(), leader));
        std::vector<io::MemberTensors> members = own_weights;
        const std::byte* at = bytes.data();
        MILLRACE_TRY(each_tensor(members, [&](io::TensorView& tensor) {
            tensor.pour = {};
            tensor.data = at;
            at += tensor.bytes;
            return base::ok();
        }));
        if (leads()) all.insert(all.end(), members.begin(), members.end());
        if (!leads()) bytes = {};
    }
    return leads() ? all : own_weights;
}

base::Status Ranks::agree(const base::Status& own) {
    base::Status all = comm::Group::agree(world_, own);
    refused_ = !all.ok();
    return all;
}

base::Status Ranks::all_equal(const std::string& text, const char* what) const {
    MILLRACE_LET(texts, comm::Group::all_texts(world_, text));
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
        if (texts[rank] == texts[0]) continue;
        const std::vector<std::string> here = base::split(texts[rank], '\n'), first = base::split(texts[0], '\n');
        std::size_t at = 0;
        while (at < here.size() && at < first.size() && here[at] == first[at]) ++at;
        const auto line = [at](const std::vector<std::string>& lines) { return at < lines.size() ? lines[at] : "nothing"; };
        if (!leads()) return base::Error{};
        return base::Error{
            fmt::format("the {} of rank {} on {} is not that of rank 0 on {}: \"{}\", not \"{}\"; all ranks must have "
                        "the same",
                        what, rank, world_.hosts()[rank], world_.hosts()[0], line(here), line(first))};
    }
    return base::ok();
}

base::Result<std::string> Ranks::from_first(const std::string& text) const {
    MILLRACE_LET(texts, comm::Group::all_texts(world_, leads() ? text : ""));
    return texts.front();
}

}  // namespace millrace::train
