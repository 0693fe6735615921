#include "train/model_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"

namespace millrace::train {
namespace {

/// "experts.0.4" of "experts.0.4.weight".
std::string layer_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

std::string shape_of(const tape::Parameter& parameter) {
    if (parameter.vector) return std::to_string(parameter.cols);
    std::string text = std::to_string(parameter.rows);
    if (parameter.axes.empty()) return fmt::format("{} x {}", text, parameter.cols);
    for (const std::int32_t axis : parameter.axes) text += fmt::format(" x {}", axis);
    return text;
}

/// A record of a plan: "dense_forward experts.0.4 (x2) [1,2,128,64]f32".
struct RecordText {
    std::string kind, layer, output;
};
RecordText parts_of(const std::string& record) {
    const std::size_t first = record.find(' '), shape = record.rfind(" [");
    RecordText parts{record.substr(0, first), "", ""};
    if (first == std::string::npos || shape == std::string::npos || shape < first) return parts;
    if (shape > first) parts.layer = record.substr(first + 1, shape - first - 1);
    parts.layer = parts.layer.substr(0, parts.layer.find(" (x"));
    const std::string inside = record.substr(shape + 2, record.find(']', shape) - shape - 2);
    const std::size_t columns = inside.rfind(','), rows = columns == std::string::npos ? columns : inside.rfind(',', columns - 1);
    if (rows != std::string::npos)
        parts.output = fmt::format("{} x {}", inside.substr(rows + 1, columns - rows - 1), inside.substr(columns + 1));
    return parts;
}

LayerReport& layer_named(std::vector<LayerReport>& layers, const std::string& name) {
    const auto found = std::ranges::find(layers, name, &LayerReport::name);
    if (found != layers.end()) return *found;
    layers.push_back({});
    layers.back().name = name;
    return layers.back();
}

}  // namespace

ModelReport report_model(Setup& setup, const std::string& recipe) {
    Engine& engine = *setup.engine;
    ModelReport report;
    report.recipe = recipe;
    report.model = setup.settings.model;
    report.device = setup.device;
    report.precision = setup.precision;
    report.batch = setup.settings.batch;
    report.micro_batch = engine.micro_batch();
    report.memory = engine.memory_needs();
    const tape::Store& store = setup.engine->store();
    report.trained = store.trainable_count();
    report.members = store.members();
    for (const tape::Parameter& parameter : store.parameters()) {
        const bool is_running = !parameter.group_ids.empty() &&
                                store.groups()[static_cast<std::size_t>(parameter.group_ids.front())].name == tape::kRunning;
        if (parameter.names.empty() || is_running) continue;
        LayerReport& layer = layer_named(report.layers, layer_of(parameter.names.front()));
        layer.copies = std::max(layer.copies, parameter.matrices);
        if (!parameter.fixed) layer.parameters += parameter.count();
        layer.parts.emplace_back(parameter.names.front().substr(parameter.names.front().rfind('.') + 1), shape_of(parameter));
    }
    bool is_backward = false;
    for (const tape::KernelPlan& kernel : engine.step_program().kernel_plans()) {
        const std::int64_t flops = kernel.flops * kernel.repeat;
        report.step_flops += flops;
        const RecordText record = parts_of(kernel.records.front());
        is_backward = is_backward || record.kind.ends_with("_backward") || record.kind.ends_with("grad");
        const auto layer = std::ranges::find(report.layers, record.layer, &LayerReport::name);
        if (layer == report.layers.end() && flops == 0) continue;
        LayerReport& own = layer != report.layers.end() ? *layer : layer_named(report.layers, record.layer);
        own.step_flops += flops;
        if (is_backward) continue;
        own.forward_flops += flops;
        if (own.output.empty()) own.output = record.output;
    }
    return report;
}

std::string model_text(const ModelReport& report) {
    const auto count = [](std::int64_t value) { return base::print_count(static_cast<std::uint64_t>(value)); };
    std::size_t widest = 5;
    for (const LayerReport& layer : report.layers) widest = std::max(widest, layer.name.size() + (layer.copies > 1 ? 6 : 0));
    std::string text = fmt::format(
        "{}: {}, {} parameters{}, batch {}{}, {}, {}\n\n{:<{}} {:>12} {:>12} {:>9} {:>9}  {}\n", report.recipe, report.model,
        count(report.trained), report.members > 1 ? fmt::format(" in each of {} members", report.members) : "", report.batch,
        report.micro_batch < report.batch ? fmt::format(" in parts of {}", report.micro_batch) : "", report.precision,
        report.device, "layer", widest, "parameters", "output", "MFLOP", "step", "shapes");
    for (const LayerReport& layer : report.layers) {
        std::string shapes;
        for (const auto& [part, shape] : layer.parts) shapes += fmt::format("{}{} {}", shapes.empty() ? "" : ", ", part, shape);
        const auto mega = [](std::int64_t flops) {
            return flops > 0 ? fmt::format("{:.2f}", static_cast<double>(flops) / 1e6) : "-";
        };
        text += fmt::format("{:<{}} {:>12} {:>12} {:>9} {:>9}  {}\n",
                            layer.copies > 1 ? fmt::format("{} (x{})", layer.name, layer.copies) : layer.name, widest,
                            count(layer.parameters), layer.output.empty() ? "-" : layer.output, mega(layer.forward_flops),
                            mega(layer.step_flops), shapes);
    }
    return text + fmt::format("\nmatrix products of a step: {:.1f} MFLOP{}\nmemory: {}\n",
                              static_cast<double>(report.step_flops) / 1e6, report.members > 1 ? ", all members" : "",
                              report.memory.text());
}

std::string model_json(const ModelReport& report) {
    nlohmann::ordered_json json{{"recipe", report.recipe},        {"model", report.model},
                                {"parameters", report.trained},   {"members", report.members},
                                {"batch", report.batch},          {"micro_batch", report.micro_batch},
                                {"precision", report.precision},  {"device", report.device},
                                {"step_flop", report.step_flops}, {"memory_bytes", report.memory.total()}};
    json["layers"] = nlohmann::ordered_json::array();
    for (const LayerReport& layer : report.layers) {
        nlohmann::ordered_json row{{"name", layer.name},
                                   {"copies", layer.copies},
                                   {"parameters", layer.parameters},
                                   {"forward_flop", layer.forward_flops},
                                   {"step_flop", layer.step_flops}};
        if (!layer.output.empty()) row["output"] = layer.output;
        for (const auto& [part, shape] : layer.parts) row["shapes"][part] = shape;
        json["layers"].push_back(std::move(row));
    }
    return base::json_text(json, 1) + "\n";
}

}  // namespace millrace::train
