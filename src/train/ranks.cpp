#include "train/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/split.h"
#include "base/version.h"
#include "io/packing.h"
#include "train/lanes.h"

namespace millrace::models {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Figure, name, value)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Scored, figures, summary, notes, chosen, refused)

}  // namespace millrace::models

namespace millrace::train {

static void to_json(nlohmann::json& json, const Score& score) {
    json = {score.loss, score.accuracy, score.more, score.domains, nullptr};
    if (score.classes) json.back() = {score.classes->classes.size(), score.classes->confusion};
}

static void from_json(const nlohmann::json& json, Score& score) {
    score = {json.at(0), json.at(1), json.at(2).get<models::Scored>()};
    score.domains = json.at(3).get<std::vector<Score>>();
    if (const nlohmann::json& classes = json.at(4); !classes.is_null())
        score.classes = models::class_report(classes.at(1).get<models::Confusion>(), classes.at(0));
}

namespace {

constexpr std::ptrdiff_t kGathered = std::ptrdiff_t{1} << 26;  ///< bytes of each rank at a time

/// How many groups share out the members.
base::Result<int> groups_of(const base::Recipe& recipe, int world) {
    const auto members = static_cast<int>(recipe.integer("members"));
    const int most = std::gcd(members, world);
    const std::string& wanted = recipe.text("parallel.members");
    if (world == 1 || wanted == "auto") return most;
    for (int groups = 1; groups <= most; ++groups)
        if (most % groups == 0 && wanted == std::to_string(groups)) return groups;
    return recipe.bad("parallel.members",
                      fmt::format("parallel.members = \"{}\", but {} ranks share {} members; \"auto\" or a divisor of both ({} "
                                  "and others) would be right",
                                  wanted, world, members, most));
}

/// What one rank holds of the run's members.
template <class T>
std::vector<T> part_of(const std::vector<T>& all, int first, int count) {
    if (all.empty()) return {};
    return {all.begin() + first, all.begin() + first + count};
}

}  // namespace

Ranks::Ranks(comm::Group& world, const base::Recipe& recipe)
    : world_(world),
      watchdog_(world, std::chrono::duration_cast<std::chrono::milliseconds>(recipe.duration("parallel.timeout"))),
      members_(static_cast<int>(recipe.integer("members"))) {}

base::Result<std::unique_ptr<Ranks>> Ranks::open(comm::Group& world, const base::Recipe& recipe) {
    std::unique_ptr<Ranks> ranks(new Ranks(world, recipe));
    const auto groups = groups_of(recipe, world.size());
    MILLRACE_TRY(world.agree(groups));
    MILLRACE_TRY(ranks->all_equal(base::version(), "version of millrace"));
    MILLRACE_TRY(ranks->all_equal(recipe.to_toml(), "recipe"));
    const int each = world.size() / *groups;
    MILLRACE_SET(ranks->data_, world.split(world.rank() / each));
    MILLRACE_SET(ranks->across_, world.split(world.rank() % each));
    return ranks;
}

std::string Ranks::text(double message_share) const {
    constexpr double kMuch = 0.3;  // below it messages are not what a step waits for
    if (!several()) return {};
    if (!shares_rows())
        return fmt::format("{}, each trains {} of the {} members, without messages", world_.size(), own(), members_);
    std::string text = fmt::format("{}, which share the rows of a step", world_.size());
    if (groups() > 1)
        text = fmt::format("{}: {} groups with {} of the {} members each; in each group {} share the rows of a step",
                           world_.size(), groups(), own(), members_, data_->size());
    text += fmt::format("; messages take {:.0f} % of a step", 100 * message_share);
    if (message_share > kMuch)
        text +=
            "\n        members over ranks (members = a multiple of the ranks) need no messages: one model for each rank in the "
            "same time";
    return text;
}

base::Result<base::Recipe> Ranks::own_part(const base::Recipe& recipe) const {
    if (groups() == 1) return recipe;
    return member_part(recipe, first(), own());
}

RunState Ranks::own_part(const RunState& state) const {
    RunState part = state;
    if (groups() == 1 || state.members.empty()) return part;
    part.members = part_of(state.members, first(), own());
    const auto each = static_cast<int>(state.group_names.size());
    part.groups = part_of(state.groups, each * first(), each * own());
    part.epoch_sums.members = part_of(state.epoch_sums.members, first(), own());
    return part;
}

void Ranks::keep_own(io::LoadedCheckpoint& checkpoint) const {
    if (static_cast<int>(checkpoint.members.size()) != members_) return;
    checkpoint.members.erase(checkpoint.members.begin() + first() + own(), checkpoint.members.end());
    checkpoint.members.erase(checkpoint.members.begin(), checkpoint.members.begin() + first());
}

base::Result<StepSums> Ranks::all_sums(StepSums sums) const {
    MILLRACE_SET(sums.members, all_members(sums.members));
    return sums;
}

base::Result<std::vector<Score>> Ranks::all_scores(std::vector<Score> own_scores) const {
    if (groups() == 1) return own_scores;
    MILLRACE_LET(texts, across_->all_lists(nlohmann::json::to_cbor(own_scores)));  // which keeps what is not finite
    std::vector<Score> all;
    for (const auto& text : texts)
        for (const nlohmann::json& score : nlohmann::json::from_cbor(text)) all.push_back(score);
    return all;
}

base::Result<std::vector<io::MemberTensors>> Ranks::all_weights(const std::vector<io::MemberTensors>& own_weights) {
    if (groups() == 1) return own_weights;
    const auto each_tensor = [](auto& members, auto visit) -> base::Status {
        for (auto& member : members)
            for (auto* tensors : {&member.model, &member.optimizer})
                for (auto& tensor : *tensors) MILLRACE_TRY(visit(tensor));
        return base::ok();
    };
    io::MemorySink flat;
    MILLRACE_TRY(each_tensor(own_weights, [&](const io::TensorView& tensor) {
        return tensor.pour ? tensor.pour(flat) : flat.write({tensor.data, tensor.bytes});
    }));
    received_.assign(leads() ? static_cast<std::size_t>(groups()) : 0, {});
    for (std::vector<std::byte>& bytes : received_) bytes.reserve(flat.bytes.size());
    for (auto begin = flat.bytes.begin(), end = begin; begin != flat.bytes.end(); begin = end) {
        end += std::min(kGathered, flat.bytes.end() - begin);
        MILLRACE_LET(parts, all_members(std::vector<std::byte>(begin, end)));
        auto part = parts.begin();
        for (std::vector<std::byte>& bytes : received_) {
            bytes.insert(bytes.end(), part, part + (end - begin));
            part += end - begin;
        }
    }
    std::vector<io::MemberTensors> all;
    for (const std::vector<std::byte>& bytes : received_) {
        std::vector<io::MemberTensors> members = own_weights;
        const std::byte* at = bytes.data();
        MILLRACE_TRY(each_tensor(members, [&](io::TensorView& tensor) {
            tensor.pour = {};
            tensor.data = at;
            at += tensor.bytes;
            return base::ok();
        }));
        all.insert(all.end(), members.begin(), members.end());
    }
    return leads() ? all : own_weights;
}

base::Status Ranks::all_equal(const std::string& text, const char* what) const {
    MILLRACE_LET(texts, world_.all_lists(text));
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
        if (texts[rank] == texts[0]) continue;
        const std::vector<std::string> here = base::split(texts[rank], '\n'), first = base::split(texts[0], '\n');
        const auto [ours, theirs] = std::ranges::mismatch(here, first);
        if (!leads()) return base::Error{};
        return base::Error{fmt::format("the {} of {} is not that of {}: \"{}\", not \"{}\"; all ranks must have the same", what,
                                       world_.name_of(static_cast<int>(rank)), world_.name_of(0),
                                       ours != here.end() ? *ours : "nothing", theirs != first.end() ? *theirs : "nothing")};
    }
    return base::ok();
}

}  // namespace millrace::train
