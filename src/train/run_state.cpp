#include "train/run_state.h"

#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include <cmath>
#include <type_traits>
#include <utility>

#include "base/json.h"
#include "base/version.h"

namespace millrace::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

/// Leaves decode() alone: caught where the text came in.
struct Misfit {
    std::string what;
};

const Json& part(const Json& json, const char* key) {
    if (!json.is_object() || !json.contains(key)) throw Misfit{fmt::format("'{}' is missing", key)};
    return json.at(key);
}

const Json& list(const Json& json, const char* key) {
    const Json& value = part(json, key);
    if (!value.is_array()) throw Misfit{fmt::format("'{}' is not a list", key)};
    return value;
}

/// The library converts without checking range or type: -1 would become a huge step.
template <class T>
T as(const Json& value, const char* key) {
    if constexpr (std::is_same_v<T, bool>) {
        if (!value.is_boolean()) throw Misfit{fmt::format("'{}' is neither true nor false", key)};
    } else if constexpr (std::is_same_v<T, std::string>) {
        if (!value.is_string()) throw Misfit{fmt::format("'{}' is no text", key)};
    } else if constexpr (std::is_floating_point_v<T>) {
        if (!value.is_number()) throw Misfit{fmt::format("'{}' is no number", key)};
    } else {
        const bool fits = value.is_number_unsigned()
                              ? std::in_range<T>(value.template get<std::uint64_t>())
                              : value.is_number_integer() && std::in_range<T>(value.template get<std::int64_t>());
        if (!fits)
            throw Misfit{fmt::format("'{}' is no whole number from {} to {}", key, std::numeric_limits<T>::min(),
                                     std::numeric_limits<T>::max())};
    }
    return value.template get<T>();
}

template <class T>
T read(const Json& json, const char* key) {
    return as<T>(part(json, key), key);
}

/// JSON has no infinities; the two that occur are the starting values of a minimum and a maximum.
double read_or(const Json& json, const char* key, double missing) {
    const Json& value = part(json, key);
    return value.is_null() ? missing : as<double>(value, key);
}

// The fields that state.json holds by their names.
#define MILLRACE_MEMBER_FIELDS(field) \
    field(seed) field(base_lr) field(weight_decay) field(beta1) field(beta2) field(epsilon) field(clip_norm) field(step) \
        field(epoch) field(position) field(skipped) field(applied)
#define MILLRACE_SUM_FIELDS(field) \
    field(steps) field(dropped) field(rows) field(correct) field(loss) field(penalty) field(grad_norm) field(grad_norm_max)
#define MILLRACE_DATA_FIELDS(field) field(name) field(train) field(validation) field(test) field(checksum)
#define MILLRACE_ENCODE(name) json[#name] = state.name;
#define MILLRACE_DECODE(name) state.name = read<decltype(state.name)>(json, #name);

Json encode_member(const ops::MemberState& state) {
    Json json;
    MILLRACE_MEMBER_FIELDS(MILLRACE_ENCODE)
    json["dropout_scale"] = state.dropout_scale;
    if (state.loss_scale != 1 || state.good_steps != 0) {  // f16
        json["loss_scale"] = state.loss_scale;
        json["good_steps"] = state.good_steps;
    }
    return json;
}

ops::MemberState decode_member(const Json& json) {
    ops::MemberState state;
    MILLRACE_MEMBER_FIELDS(MILLRACE_DECODE)
    if (json.contains("dropout_scale")) state.dropout_scale = read<float>(json, "dropout_scale");
    if (json.contains("loss_scale")) {
        state.loss_scale = read<float>(json, "loss_scale");
        state.good_steps = read<std::uint32_t>(json, "good_steps");
        if (!(state.loss_scale >= 1 && std::isfinite(state.loss_scale))) throw Misfit{"'loss_scale' is no number of at least 1"};
    }
    return state;
}

Json encode_sums(const MemberSums& state) {
    Json json;
    MILLRACE_SUM_FIELDS(MILLRACE_ENCODE)
    MILLRACE_ENCODE(loss_min)
    MILLRACE_ENCODE(loss_max)
    return json;
}

MemberSums decode_sums(const Json& json) {
    MemberSums state;
    MILLRACE_SUM_FIELDS(MILLRACE_DECODE)
    state.loss_min = read_or(json, "loss_min", state.loss_min);
    state.loss_max = read_or(json, "loss_max", state.loss_max);
    return state;
}

Json encode_data(const data::DataIdentity& state) {
    Json json;
    MILLRACE_DATA_FIELDS(MILLRACE_ENCODE)
    if (state.streamed) json["streamed"] = true;
    return json;
}

data::DataIdentity decode_data(const Json& json) {
    data::DataIdentity state;
    MILLRACE_DATA_FIELDS(MILLRACE_DECODE)
    state.streamed = json.contains("streamed") && read<bool>(json, "streamed");
    return state;
}

/// Those of one member.
Json encode_groups(const std::vector<std::string>& names, const ops::GroupState* groups) {
    Json json = Json::object();
    for (const std::string& name : names) {
        const ops::GroupState& state = *groups++;
        json[name] = {{"lr_factor", state.lr_factor},
                      {"decay_factor", state.decay_factor},
                      {"trainable", state.trainable != 0},
                      {"applied", state.applied},
                      {"last_applied", state.last_applied}};
    }
    return json;
}

/// Adds those of one member.
void decode_groups(const Json& json, RunState& state) {
    if (!json.is_object()) throw Misfit{"'groups' is not an object"};
    if (state.group_names.empty())
        for (const auto& [name, group] : json.items()) state.group_names.push_back(name);
    if (json.size() != state.group_names.size()) throw Misfit{"'groups' of the members differ"};
    for (const std::string& name : state.group_names) {
        const Json& group = part(json, name.c_str());
        state.groups.push_back({.lr_factor = read<float>(group, "lr_factor"),
                                .decay_factor = read<float>(group, "decay_factor"),
                                .trainable = read<bool>(group, "trainable") ? 1u : 0u,
                                .applied = read<std::uint32_t>(group, "applied"),
                                .last_applied = group.contains("last_applied") ? read<std::uint32_t>(group, "last_applied") : 0});
    }
}

Json encode_figures(const RunFigures& figures) {
    Json json{{"seconds", figures.seconds},
              {"samples_per_second", figures.samples_per_second},
              {"steps_per_second", figures.steps_per_second},
              {"wall_seconds", figures.wall_seconds},
              {"cpu_share", figures.cpu_share}};
    if (figures.gpu_utilization_percent) json["gpu_utilization_percent"] = *figures.gpu_utilization_percent;
    if (figures.sm_active_percent) json["sm_active_percent"] = *figures.sm_active_percent;
    return json;
}

Staleness decode_staleness(const Json& json, std::size_t members) {
    Staleness staleness;
    staleness.evaluations = read<std::uint32_t>(json, "evaluations");
    for (const Json& best : list(json, "best"))
        staleness.best.push_back(best.is_null() ? std::numeric_limits<double>::quiet_NaN() : as<double>(best, "best"));
    if (!staleness.best.empty() && staleness.best.size() != members)
        throw Misfit{"'best' of 'staleness' has not one entry per member"};
    return staleness;
}

std::vector<models::DomainLosses> decode_domains(const Json& json, std::size_t members) {
    std::vector<models::DomainLosses> epochs;
    for (const Json& entry : list(json, "domains")) {
        models::DomainLosses& epoch = epochs.emplace_back();
        epoch.epoch = read<std::uint32_t>(entry, "epoch");
        for (const Json& member : list(entry, "losses")) {
            std::vector<double>& losses = epoch.losses.emplace_back();
            if (!member.is_array()) throw Misfit{"'losses' of 'domains' is no list of lists"};
            for (const Json& loss : member)
                losses.push_back(loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : as<double>(loss, "losses"));
            if (losses.empty() || losses.size() != epochs.front().losses.front().size())
                throw Misfit{"'losses' of 'domains' have not one entry per domain"};
        }
        if (epoch.losses.size() != members) throw Misfit{"'losses' of 'domains' have not one entry per member"};
    }
    return epochs;
}

BestSoFar decode_best(const Json& json, std::size_t members) {
    BestSoFar best{true, read<double>(json, "value"), 0, read<std::uint32_t>(json, "epoch"), read<std::uint64_t>(json, "step"),
                   {}};
    if (json.contains("member")) best.member = read<std::uint32_t>(json, "member");
    if (best.member >= members) throw Misfit{"'member' of 'best' is none of the members"};
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    for (const Json& loss : list(json, "losses"))
        best.members.push_back({nothing, best.epoch, best.step, loss.is_null() ? nothing : as<double>(loss, "losses"), 0});
    const auto each = [&](const char* key, auto set) {
        const Json& values = list(json, key);
        if (values.size() != best.members.size() || (!values.empty() && values.size() != members))
            throw Misfit{fmt::format("'{}' of 'best' has not one entry per member", key)};
        for (std::size_t k = 0; k < values.size(); ++k) set(best.members[k], values[k]);
    };
    each("accuracies", [](MemberBest& of, const Json& value) { of.accuracy = as<double>(value, "accuracies"); });
    // One member, or a run of before members had a best epoch each: the others find theirs anew.
    if (!json.contains("values")) {
        if (!best.members.empty()) best.members[best.member].value = best.value;
        return best;
    }
    each("values",
         [&](MemberBest& of, const Json& value) { of.value = value.is_null() ? nothing : as<double>(value, "values"); });
    each("epochs", [](MemberBest& of, const Json& value) { of.epoch = as<std::uint32_t>(value, "epochs"); });
    each("steps", [](MemberBest& of, const Json& value) { of.step = as<std::uint64_t>(value, "steps"); });
    return best;
}

Json encode_best(const BestSoFar& best) {
    if (!best.any) return nullptr;
    Json json{{"value", best.value}, {"member", best.member}, {"epoch", best.epoch}, {"step", best.step}};
    const auto add = [&](const char* key, auto field) {
        json[key] = Json::array();
        for (const MemberBest& member : best.members) json[key].push_back(member.*field);
    };
    add("losses", &MemberBest::loss);
    add("accuracies", &MemberBest::accuracy);
    if (best.members.size() < 2) return json;  // the same as above
    add("values", &MemberBest::value);
    add("epochs", &MemberBest::epoch);
    add("steps", &MemberBest::step);
    return json;
}

RunState decode(const Json& json) {
    RunState state;
    state.step = read<std::uint64_t>(json, "step");
    state.steps_per_epoch = read<std::uint64_t>(json, "steps_per_epoch");
    if (json.contains("micro_batch")) state.micro_batch = read<std::int32_t>(json, "micro_batch");
    if (json.contains("forms"))
        for (const Json& form : list(json, "forms")) state.forms.push_back(as<std::string>(form, "forms"));
    state.complete = read<bool>(json, "complete");
    for (const Json& member : list(json, "members")) {
        state.members.push_back(decode_member(member));
        if (member.contains("groups")) decode_groups(member.at("groups"), state);
    }
    if (state.groups.size() != state.members.size() * state.group_names.size()) throw Misfit{"a member has no 'groups'"};
    state.epoch_sums = StepSums(static_cast<int>(state.members.size()));
    const Json& sums = list(json, "epoch_sums");
    if (sums.size() != state.members.size())
        throw Misfit{fmt::format("'epoch_sums' has {} entries for {} members", sums.size(), state.members.size())};
    for (std::size_t k = 0; k < state.members.size(); ++k) state.epoch_sums.members[k] = decode_sums(sums[k]);
    if (const Json& best = part(json, "best"); !best.is_null()) state.best = decode_best(best, state.members.size());
    if (json.contains("staleness")) state.staleness = decode_staleness(json.at("staleness"), state.members.size());
    if (json.contains("domains")) state.domains = decode_domains(json, state.members.size());
    state.data = decode_data(part(json, "data"));
    state.metrics_offset = read<std::uint64_t>(part(json, "streams"), "metrics.jsonl");
    state.recipe = read<std::string>(json, "recipe_toml");
    state.figures.model = read<std::string>(json, "model");
    state.figures.preset = read<std::string>(json, "preset");
    if (json.contains("precision")) state.figures.precision = read<std::string>(json, "precision");
    return state;
}

}  // namespace

std::string encode_state(const RunState& state) {
    Json json;
    json["format"] = kFormat;
    json["millrace"] = base::version();
    json["model"] = state.figures.model;
    json["preset"] = state.figures.preset;
    json["parameters"] = state.figures.parameters;
    json["device"] = state.figures.device;
    json["precision"] = state.figures.precision;
    json["step"] = state.step;
    json["steps_per_epoch"] = state.steps_per_epoch;
    json["micro_batch"] = state.micro_batch;
    if (!state.forms.empty()) json["forms"] = state.forms;
    json["epoch"] = state.members.front().epoch;
    json["position"] = state.members.front().position;
    json["complete"] = state.complete;
    json["best"] = encode_best(state.best);
    json["staleness"] = {{"evaluations", state.staleness.evaluations}, {"best", state.staleness.best}};
    for (const models::DomainLosses& epoch : state.domains)
        json["domains"].push_back({{"epoch", epoch.epoch}, {"losses", epoch.losses}});
    json["speed"] = encode_figures(state.figures);
    json["streams"] = {{"metrics.jsonl", state.metrics_offset}};
    json["data"] = encode_data(state.data);
    json["members"] = Json::array();
    for (std::size_t k = 0; k < state.members.size(); ++k) {
        json["members"].push_back(encode_member(state.members[k]));
        if (!state.groups.empty())
            json["members"].back()["groups"] = encode_groups(state.group_names, &state.groups[k * state.group_names.size()]);
    }
    json["epoch_sums"] = Json::array();
    for (const MemberSums& sums : state.epoch_sums.members) json["epoch_sums"].push_back(encode_sums(sums));
    json["recipe"] = base::ordered_json_or_throw(state.recipe_json.empty() ? "{}" : state.recipe_json);
    json["recipe_toml"] = state.recipe;
    return base::json_text(json, 1);
}

base::Result<RunState> decode_state(const std::string& text, const std::string& place) {
    const Json json = base::ordered_json_from(text);
    if (!json.is_object()) return base::Error{"is not the state of a run: it must be one whole JSON object", place};
    try {
        if (const int format = read<int>(json, "format"); format != kFormat)
            return base::Error{fmt::format("format {} is not {}: written by another version of Millrace", format, kFormat),
                               place};
        RunState state = decode(json);
        if (state.members.empty()) return base::Error{"holds no member", place};
        return state;
    } catch (const Misfit& misfit) {
        return base::Error{fmt::format("is not the state of a run: {}", misfit.what), place};
    }
}

void read_groups(tape::Store& store, RunState& state) {
    state.groups = store.read_groups();
    for (const auto& group : store.groups()) state.group_names.push_back(group.name);
}

base::Status write_groups(tape::Store& store, const RunState& state) {
    std::vector<ops::GroupState> table = store.read_groups();
    const std::size_t count = store.groups().size();
    for (std::size_t i = 0; i < table.size(); ++i) {
        if (state.groups.empty()) {
            if (table[i].trainable != 0) table[i].applied = state.members[i / count].applied;
            continue;
        }
        const std::string& name = store.groups()[i % count].name;
        const auto found = std::ranges::find(state.group_names, name) - state.group_names.begin();
        if (static_cast<std::size_t>(found) == state.group_names.size() || state.group_names.size() != count)
            return base::Error{
                fmt::format("the checkpoint's groups of parameters are not the model's {}, '{}' among them", count, name)};
        table[i] = state.groups[i / count * count + static_cast<std::size_t>(found)];
    }
    store.write_groups(table);
    return base::ok();
}

}  // namespace millrace::train
