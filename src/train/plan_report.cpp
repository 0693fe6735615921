#include "train/plan_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"

namespace millrace::train {
namespace {

using Json = nlohmann::ordered_json;

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

}  // namespace

base::Result<PlanReport> report_plan(Setup& setup, const std::string& recipe, bool timed) {
    Engine& engine = *setup.engine;
    PlanReport report{recipe,
                      setup.device,
                      setup.precision,
                      engine.store().trainable_count(),
                      setup.settings.batch,
                      engine.micro_batch(),
                      engine.memory_needs(),
                      engine.memory_used(),
                      engine.step_program().kernel_plans(),
                      {}};
    if (!timed) return report;
    MILLRACE_LET(times, engine.time_kernels());
    for (const tape::KernelTime& time : times) report.microseconds.push_back(time.microseconds);
    return report;
}

std::string plan_text(const PlanReport& r) {
    std::string text =
        fmt::format("{}: {} parameters, batch {}{}, {}, {}\nmemory: {}; taken {}\n\n", r.recipe, r.parameters, r.batch,
                    r.micro_batch < r.batch ? fmt::format(" in parts of {}", r.micro_batch) : "", r.precision, r.device,
                    r.memory.text(), base::print_bytes(static_cast<std::uint64_t>(r.taken)));
    text +=
        fmt::format("{:>9} {:>9} {:>9} {:>9} {:>9}  {}\n", "predicted", "measured", "MFLOP", "KiB", "scratch", "records; form");
    double predicted = 0, measured = 0;
    for (std::size_t i = 0; i < r.kernels.size(); ++i) {
        const tape::KernelPlan& kernel = r.kernels[i];
        const bool timed = i < r.microseconds.size();
        predicted += kernel.repeat * kernel.predicted;
        if (timed) measured += kernel.repeat * r.microseconds[i];
        const std::string form = form_text(kernel);
        text += fmt::format("{:>9} {:>9} {:>9.1f} {:>9.0f} {:>9.0f}  {}{}\n",
                            kernel.predicted > 0 ? fmt::format("{:.1f} us", kernel.predicted) : "-",
                            timed ? fmt::format("{:.1f} us", r.microseconds[i]) : "-", static_cast<double>(kernel.flops) / 1e6,
                            1024 * mib(kernel.bytes), 1024 * mib(kernel.scratch), records_text(kernel),
                            form.empty() ? "" : "; " + form);
    }
    text += fmt::format("\n{} kernels", r.kernels.size());
    if (!r.microseconds.empty()) text += fmt::format(", {:.1f} us one by one", measured);
    if (predicted > 0) text += fmt::format("; {:.1f} us predicted for those whose form was chosen", predicted);
    return text + "\n";
}

std::string plan_json(const PlanReport& r) {
    Json json{{"recipe", r.recipe},
              {"device", r.device},
              {"precision", r.precision},
              {"parameters", r.parameters},
              {"batch", r.batch},
              {"micro_batch", r.micro_batch},
              {"memory_bytes",
               {{"data", r.memory.data},
                {"parameters", r.memory.parameters},
                {"gradients", r.memory.gradients},
                {"optimizer", r.memory.optimizer},
                {"activations", r.memory.activations},
                {"scratch", r.memory.scratch},
                {"other", r.memory.other}}},
              {"taken_bytes", r.taken},
              {"kernels", Json::array()}};
    for (std::size_t i = 0; i < r.kernels.size(); ++i) {
        const tape::KernelPlan& kernel = r.kernels[i];
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
        if (i < r.microseconds.size()) row["us"] = r.microseconds[i];
        json["kernels"].push_back(std::move(row));
    }
    return base::json_text(json, 1) + "\n";
}

}  // namespace millrace::train
