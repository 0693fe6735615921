#include "train/model_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"

namespace millrace::train {
namespace {

using Json = nlohmann::ordered_json;

struct LayerReport {
    std::string name;                                        ///< "experts.0.4"
    std::int32_t copies = 1;                                 ///< equal layers side by side
    std::vector<std::pair<std::string, std::string>> parts;  ///< "weight": "64 x 128", of one copy
    std::int64_t parameters = 0;                             ///< of all copies; those that are never trained are left out
    std::string output;                              ///< of its forward pass: "128 x 64" rows and columns; empty: not known
    std::int64_t forward_flops = 0, step_flops = 0;  ///< of its matrix products: a forward pass, a training step
};

std::string parts_text(const Setup& setup) {
    const std::int32_t micro_batch = setup.engine->micro_batch();
    return micro_batch < setup.settings.batch ? fmt::format(" in parts of {}", micro_batch) : "";
}

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

void add_parameters(const tape::Store& store, std::vector<LayerReport>& layers) {
    for (const tape::Parameter& parameter : store.parameters()) {
        const bool is_running = !parameter.group_ids.empty() &&
                                store.groups()[static_cast<std::size_t>(parameter.group_ids.front())].name == tape::kRunning;
        if (parameter.names.empty() || is_running) continue;
        LayerReport& layer = layer_named(layers, layer_of(parameter.names.front()));
        layer.copies = std::max(layer.copies, parameter.matrices);
        if (!parameter.fixed) layer.parameters += parameter.count();
        layer.parts.emplace_back(parameter.names.front().substr(parameter.names.front().rfind('.') + 1), shape_of(parameter));
    }
}

/// Gives those of the whole step, all members.
std::int64_t add_flops(const tape::Program& step, std::vector<LayerReport>& layers) {
    std::int64_t all = 0;
    bool is_backward = false;
    for (const tape::KernelPlan& kernel : step.kernel_plans()) {
        const std::int64_t flops = kernel.flops * kernel.repeat;
        all += flops;
        const RecordText record = parts_of(kernel.records.front());
        is_backward = is_backward || record.kind.ends_with("_backward") || record.kind.ends_with("grad");
        const auto layer = std::ranges::find(layers, record.layer, &LayerReport::name);
        if (layer == layers.end() && flops == 0) continue;
        LayerReport& own = layer != layers.end() ? *layer : layer_named(layers, record.layer);
        own.step_flops += flops;
        if (is_backward) continue;
        own.forward_flops += flops;
        if (own.output.empty()) own.output = record.output;
    }
    return all;
}

std::string model_json(const Setup& setup, const std::string& recipe, const std::vector<LayerReport>& layers,
                       std::int64_t step_flops) {
    Engine& engine = *setup.engine;
    Json json{{"recipe", recipe},
              {"model", setup.settings.model},
              {"parameters", engine.store().trainable_count()},
              {"members", engine.members()},
              {"batch", setup.settings.batch},
              {"micro_batch", engine.micro_batch()},
              {"precision", setup.precision},
              {"device", setup.device},
              {"step_flop", step_flops},
              {"memory_bytes", engine.memory_needs().total()}};
    json["layers"] = Json::array();
    for (const LayerReport& layer : layers) {
        Json row{{"name", layer.name},
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

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// "tiles; not strips (8.2 us), library (9.9 us); narrow: more than four outputs, or few rows".
std::string form_text(const tape::KernelPlan& kernel) {
    if (kernel.form.empty()) return "";
    std::string slower, refused;
    for (const ops::FormOffer& offer : kernel.offers) {
        if (offer.name == kernel.form) continue;
        if (offer.refusal.empty())
            slower += fmt::format("{}{} ({:.1f} us)", slower.empty() ? "" : ", ", offer.name, offer.predicted);
        else
            refused += fmt::format("; {}: {}", offer.name, offer.refusal);
    }
    return fmt::format("{}{}{}", kernel.form, slower.empty() ? "" : "; not " + slower, refused);
}

std::string records_text(const tape::KernelPlan& kernel) {
    std::string text = kernel.records.front();
    if (kernel.records.size() > 1) text += " + " + kernel.records[1];
    if (kernel.records.size() > 2) text += fmt::format(" + {} more", kernel.records.size() - 2);
    return kernel.repeat > 1 ? fmt::format("{} times {}", kernel.repeat, text) : text;
}

std::string plan_text(const Setup& setup, const std::string& recipe, const std::vector<tape::KernelTime>& times) {
    Engine& engine = *setup.engine;
    const std::vector<tape::KernelPlan> kernels = engine.step_program().kernel_plans();
    std::string text =
        fmt::format("{}: {} parameters, batch {}{}, {}, {}\nmemory: {}; taken {}\n\n", recipe, engine.store().trainable_count(),
                    setup.settings.batch, parts_text(setup), setup.precision, setup.device, engine.memory_needs().text(),
                    base::print_bytes(static_cast<std::uint64_t>(engine.memory_used())));
    text +=
        fmt::format("{:>9} {:>9} {:>9} {:>9} {:>9}  {}\n", "predicted", "measured", "MFLOP", "KiB", "scratch", "records; form");
    double predicted = 0, measured = 0;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const tape::KernelPlan& kernel = kernels[i];
        const bool timed = i < times.size();
        predicted += kernel.repeat * kernel.predicted;
        if (timed) measured += kernel.repeat * times[i].microseconds;
        const std::string form = form_text(kernel);
        text += fmt::format("{:>9} {:>9} {:>9.1f} {:>9.0f} {:>9.0f}  {}{}\n",
                            kernel.predicted > 0 ? fmt::format("{:.1f} us", kernel.predicted) : "-",
                            timed ? fmt::format("{:.1f} us", times[i].microseconds) : "-",
                            static_cast<double>(kernel.flops) / 1e6, 1024 * mib(kernel.bytes), 1024 * mib(kernel.scratch),
                            records_text(kernel), form.empty() ? "" : "; " + form);
    }
    text += fmt::format("\n{} kernels", kernels.size());
    if (!times.empty()) text += fmt::format(", {:.1f} us one by one", measured);
    if (predicted > 0) text += fmt::format("; {:.1f} us predicted for those whose form was chosen", predicted);
    return text + "\n";
}

/// `times`: of each kernel alone; empty: not measured.
std::string plan_json(const Setup& setup, const std::string& recipe, const std::vector<tape::KernelTime>& times) {
    Engine& engine = *setup.engine;
    const MemoryNeeds& memory = engine.memory_needs();
    const std::vector<tape::KernelPlan> kernels = engine.step_program().kernel_plans();
    Json json{{"recipe", recipe},
              {"device", setup.device},
              {"precision", setup.precision},
              {"parameters", engine.store().trainable_count()},
              {"batch", setup.settings.batch},
              {"micro_batch", engine.micro_batch()},
              {"memory_bytes",
               {{"data", memory.data},
                {"parameters", memory.parameters},
                {"gradients", memory.gradients},
                {"optimizer", memory.optimizer},
                {"activations", memory.activations},
                {"scratch", memory.scratch},
                {"other", memory.other}}},
              {"taken_bytes", engine.memory_used()},
              {"kernels", Json::array()}};
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const tape::KernelPlan& kernel = kernels[i];
        Json row{{"records", kernel.records}, {"flop", kernel.flops}, {"bytes", kernel.bytes}, {"scratch_bytes", kernel.scratch}};
        if (kernel.repeat > 1) row["repeat"] = kernel.repeat;
        if (!kernel.form.empty()) {
            row["form"] = kernel.form;
            row["predicted_us"] = kernel.predicted;
            for (const ops::FormOffer& offer : kernel.offers) {
                if (offer.refusal.empty())
                    row["forms"][offer.name] = offer.predicted;
                else
                    row["refused"][offer.name] = offer.refusal;
            }
        }
        if (i < times.size()) row["us"] = times[i].microseconds;
        json["kernels"].push_back(std::move(row));
    }
    return base::json_text(json, 1) + "\n";
}

}  // namespace

std::string model_report(const Setup& setup, const std::string& recipe, bool as_json) {
    Engine& engine = *setup.engine;
    std::vector<LayerReport> layers;
    add_parameters(engine.store(), layers);
    const std::int64_t step_flops = add_flops(engine.step_program(), layers);
    if (as_json) return model_json(setup, recipe, layers, step_flops);
    const auto count = [](std::int64_t value) { return base::print_count(static_cast<std::uint64_t>(value)); };
    std::size_t widest = 5;
    for (const LayerReport& layer : layers) widest = std::max(widest, layer.name.size() + (layer.copies > 1 ? 6 : 0));
    std::string text = fmt::format("{}: {}, {} parameters{}, batch {}{}, {}, {}\n\n{:<{}} {:>12} {:>12} {:>9} {:>9}  {}\n",
                                   recipe, setup.settings.model, count(engine.store().trainable_count()),
                                   engine.members() > 1 ? fmt::format(" in each of {} members", engine.members()) : "",
                                   setup.settings.batch, parts_text(setup), setup.precision, setup.device, "layer", widest,
                                   "parameters", "output", "MFLOP", "step", "shapes");
    for (const LayerReport& layer : layers) {
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
    return text + fmt::format("\nmatrix products of a step: {:.1f} MFLOP{}\nmemory: {}\n", static_cast<double>(step_flops) / 1e6,
                              engine.members() > 1 ? ", all members" : "", engine.memory_needs().text());
}

base::Result<std::string> plan_report(const Setup& setup, const std::string& recipe, bool timed, bool as_json) {
    std::vector<tape::KernelTime> times;
    if (timed) MILLRACE_SET(times, setup.engine->time_kernels());
    return as_json ? plan_json(setup, recipe, times) : plan_text(setup, recipe, times);
}

}  // namespace millrace::train
