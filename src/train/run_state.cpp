#include "train/run_state.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/version.h"

namespace millrace::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

/// JSON has no infinities; the two that occur are the starting values of a minimum and a maximum.
double number_or(const Json& value, double missing) { return value.is_null() ? missing : value.get<double>(); }

#define MILLRACE_MEMBER_FIELDS(field)                                                                                        \
    field(seed) field(base_lr) field(weight_decay) field(beta1) field(beta2) field(epsilon) field(clip_norm) field(step)     \
    field(epoch) field(position) field(skipped) field(applied)

Json encode_member(const ops::MemberState& state) {
    Json json;
#define MILLRACE_ENCODE(name) json[#name] = state.name;
    MILLRACE_MEMBER_FIELDS(MILLRACE_ENCODE)
#undef MILLRACE_ENCODE
    return json;
}

ops::MemberState decode_member(const Json& json) {
    ops::MemberState state;
#define MILLRACE_DECODE(name) state.name = json.at(#name).get<decltype(state.name)>();
    MILLRACE_MEMBER_FIELDS(MILLRACE_DECODE)
#undef MILLRACE_DECODE
    return state;
}

Json encode_sums(const MemberSums& sums) {
    return {{"steps", sums.steps},         {"dropped", sums.dropped},     {"rows", sums.rows},
            {"correct", sums.correct},     {"loss", sums.loss},           {"penalty", sums.penalty},
            {"grad_norm", sums.grad_norm}, {"grad_norm_max", sums.grad_norm_max},
            {"loss_min", sums.loss_min},   {"loss_max", sums.loss_max}};
}

MemberSums decode_sums(const Json& json) {
    MemberSums sums;
    sums.steps = json.at("steps").get<std::uint64_t>();
    sums.dropped = json.at("dropped").get<std::uint64_t>();
    sums.rows = json.at("rows").get<std::uint64_t>();
    sums.correct = json.at("correct").get<std::uint64_t>();
    sums.loss = json.at("loss").get<double>();
    sums.penalty = json.at("penalty").get<double>();
    sums.grad_norm = json.at("grad_norm").get<double>();
    sums.grad_norm_max = json.at("grad_norm_max").get<double>();
    sums.loss_min = number_or(json.at("loss_min"), std::numeric_limits<double>::infinity());
    sums.loss_max = number_or(json.at("loss_max"), -std::numeric_limits<double>::infinity());
    return sums;
}

Json encode_figures(const RunFigures& figures) {
    return {{"seconds", figures.seconds},
            {"samples_per_second", figures.samples_per_second},
            {"steps_per_second", figures.steps_per_second},
            {"wall_seconds", figures.wall_seconds},
            {"cpu_share", figures.cpu_share}};
}

RunState decode(const Json& json) {
    RunState state;
    state.step = json.at("step").get<std::uint64_t>();
    state.steps_per_epoch = json.at("steps_per_epoch").get<std::uint64_t>();
    state.complete = json.at("complete").get<bool>();
    for (const Json& member : json.at("members")) state.members.push_back(decode_member(member));
    state.epoch_sums = StepSums(static_cast<int>(state.members.size()));
    for (std::size_t k = 0; k < state.members.size(); ++k) state.epoch_sums.members[k] = decode_sums(json.at("epoch_sums").at(k));
    const Json& best = json.at("best");
    if (!best.is_null()) {
        state.best = {true, best.at("value").get<double>(), best.at("epoch").get<std::uint32_t>(), best.at("step").get<std::uint64_t>(), {}, {}};
        for (const Json& loss : best.at("losses")) state.best.losses.push_back(number_or(loss, std::numeric_limits<double>::quiet_NaN()));
        state.best.accuracies = best.at("accuracies").get<std::vector<double>>();
    }
    const Json& data = json.at("data");
    state.data = {data.at("name").get<std::string>(), data.at("train").get<std::int64_t>(), data.at("validation").get<std::int64_t>(),
                  data.at("test").get<std::int64_t>(), data.at("checksum").get<std::uint64_t>()};
    state.metrics_offset = json.at("streams").at("metrics.jsonl").get<std::uint64_t>();
    state.recipe = json.at("recipe_toml").get<std::string>();
    state.figures.model = json.at("model").get<std::string>();
    state.figures.preset = json.at("preset").get<std::string>();
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
    json["epoch"] = state.members.front().epoch;
    json["position"] = state.members.front().position;
    json["complete"] = state.complete;
    json["best"] = nullptr;
    if (state.best.any)
        json["best"] = {{"value", state.best.value}, {"epoch", state.best.epoch}, {"step", state.best.step}, {"losses", state.best.losses},
                        {"accuracies", state.best.accuracies}};
    json["speed"] = encode_figures(state.figures);
    json["streams"] = {{"metrics.jsonl", state.metrics_offset}};
    json["data"] = {{"name", state.data.name}, {"train", state.data.train}, {"validation", state.data.validation}, {"test", state.data.test},
                    {"checksum", state.data.checksum}};
    json["members"] = Json::array();
    for (const ops::MemberState& member : state.members) json["members"].push_back(encode_member(member));
    json["epoch_sums"] = Json::array();
    for (const MemberSums& sums : state.epoch_sums.members) json["epoch_sums"].push_back(encode_sums(sums));
    json["recipe"] = Json::parse(state.recipe_json.empty() ? "{}" : state.recipe_json);
    json["recipe_toml"] = state.recipe;
    return json.dump(1);
}

base::Result<RunState> decode_state(const std::string& text, const std::string& place) {
    // The library reports misfits by exception alone; this is the edge where they become values.
    try {
        const Json json = Json::parse(text);
        if (const int format = json.at("format").get<int>(); format != kFormat)
            return base::Error{fmt::format("format {} is not {}: written by another version of Millrace", format, kFormat), place};
        RunState state = decode(json);
        if (state.members.empty()) return base::Error{"holds no member", place};
        return state;
    } catch (const nlohmann::json::exception& problem) {
        return base::Error{fmt::format("is no state of a run: {}", problem.what()), place};
    }
}

}  // namespace millrace::train
