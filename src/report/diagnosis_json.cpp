#include "report/diagnosis_forms.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "base/json.h"
#include "report/doctor_words.h"

namespace millrace::report {
namespace {

constexpr std::size_t kMostRows = 50, kMostNames = 50;  ///< of a table; of a chain

/// From the steps' own ends and what is known to be missing in them, so that a reader can hold the breakdown's sum against it.
std::optional<double> mean_of_steps(const diagnose::Diagnosis& diagnosis) {
    if (diagnosis.recorded.empty()) return std::nullopt;
    double sum = 0;
    for (const auto& [begin, end] : diagnosis.recorded) sum += diagnose::ms_of(end - begin);
    return sum / static_cast<double>(diagnosis.recorded.size()) + diagnosis.unseen_loading_ms;
}

Json text(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

Json frame(const diagnose::Frame& frame) {
    return {{"file", text(frame.file)},
            {"line", frame.line > 0 ? Json(frame.line) : Json(nullptr)},
            {"function", text(frame.function)},
            {"native", frame.native}};
}

Json place_json(const std::optional<diagnose::Frame>& place) { return place ? frame(*place) : Json(nullptr); }

Json finding(const diagnose::Finding& finding) {
    Json json{{"kind", name_of(finding.kind)}, {"severity", name_of(finding.severity)}};
    json["where"] = place_json(finding.where);
    json["lost_ms_per_step"] = number(finding.lost_ms_per_step);
    json["gain_upper_bound"] = number(finding.gain_upper_bound);
    json["confidence"] = number(finding.confidence);
    json["what"] = finding.what;
    json["evidence"] = finding.evidence;
    json["fix"] = finding.fix;
    json["assumption"] = text(finding.assumption);
    json["stack"] = Json::array();
    for (const diagnose::Frame& each : finding.stack) json["stack"].push_back(frame(each));
    json["lines"] = Json::array();
    for (const diagnose::LineShare& line : finding.lines) {
        json["lines"].push_back(frame(line.frame));
        json["lines"].back()["launches"] = number(line.launches);
        json["lines"].back()["ms"] = number(line.ms);
    }
    return json;
}

Json kernel_json(const diagnose::KernelTable& table, const diagnose::KernelRow& row) {
    Json json{{"name", row.name}, {"calls", row.calls}, {"ms", number(row.ms)}, {"share", number(row.ms / table.gpu_ms)}};
    json["where"] = place_json(row.where);
    json["data_type"] = text(std::string(row.data_type));
    json["tensor_cores"] = row.units == diagnose::Units::kUnsaid ? Json(nullptr) : Json(row.units == diagnose::Units::kTensor);
    json["waves"] = number(row.waves);
    return json;
}

Json chain_json(const diagnose::KernelTable& table, const diagnose::KernelChain& chain) {
    return {
        {"where", place_json(chain.where)}, {"kernels", std::span(chain.names).first(std::min(kMostNames, chain.names.size()))},
        {"length", chain.names.size()},     {"times", chain.times},
        {"ms", number(chain.ms)},           {"share", number(chain.ms / table.gpu_ms)}};
}

void add_kernels(const diagnose::KernelTable& table, Json& json) {
    json["gpu_ms"] = table.rows.empty() ? Json(nullptr) : number(table.gpu_ms);
    json["kernels"] = Json::array();
    for (const diagnose::KernelRow& row : std::span(table.rows).first(std::min(kMostRows, table.rows.size())))
        json["kernels"].push_back(kernel_json(table, row));
    json["fusible"] = Json::array();
    for (const diagnose::KernelChain& each : std::span(table.chains).first(std::min(kMostRows, table.chains.size())))
        json["fusible"].push_back(chain_json(table, each));
}

Json ledger_json(const diagnose::RunLedger& ledger) {
    Json json{{"wall_s", number(ledger.wall_s)}};
    for (std::size_t at = 0; at < diagnose::kActivities; ++at)
        json[std::string(name_of(static_cast<diagnose::Activity>(at))) + "_s"] =
            ledger.seconds ? number((*ledger.seconds)[at]) : Json(nullptr);
    return json;
}

}  // namespace

Json number(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(nullptr); }

std::string diagnosis_json(const diagnose::Diagnosis& diagnosis) {
    const bool seen = diagnosis.steps > 0;
    const auto measured = [seen](double value) { return seen ? number(value) : Json(nullptr); };
    Json json{{"schema", kDiagnosisSchema}, {"healthy", diagnosis.healthy}};
    json["busy_share"] = measured(diagnosis.busy_share);
    json["undisturbed_busy_share"] = number(undisturbed_busy_share(diagnosis));
    json["steps"] = diagnosis.steps;
    json["step_ms"] = measured(diagnosis.step_ms);
    json["mean_step_ms"] = number(mean_of_steps(diagnosis));
    json["unseen_loading_ms_per_step"] = measured(diagnosis.unseen_loading_ms);
    json["evaluation_ms_per_step"] = measured(diagnosis.evaluation_ms);
    json["undisturbed_step_ms"] = number(diagnosis.undisturbed_step_ms);
    json["undisturbed_evaluation_ms_per_step"] = number(diagnosis.undisturbed_evaluation_ms);
    json["overhead_share"] = number(diagnosis.overhead_share);
    json["window_overhead_share"] = number(diagnosis.window_overhead_share);
    json["dropped_records"] = diagnosis.dropped_records;
    json["breakdown"] = Json::object();
    const bool divided = seen && diagnose::sum_of(diagnosis.breakdown_ms) > 0;
    for (std::size_t owner = 0; owner < diagnose::kOwners; ++owner)
        json["breakdown"][std::string(name_of(static_cast<diagnose::Owner>(owner)))] =
            divided ? number(diagnosis.breakdown_ms[owner]) : Json(nullptr);
    json["findings"] = Json::array();
    for (const diagnose::Finding& each : diagnosis.findings) json["findings"].push_back(finding(each));
    add_kernels(diagnosis.kernels, json);
    json["run"] = ledger_json(diagnosis.run);
    json["remarks"] = diagnosis.remarks;
    json["title"] = text(diagnosis.title);
    json["device"] = text(diagnosis.device_name);
    // Names come from other people's programs: bytes that are no UTF-8 must not end the report with an exception.
    return base::json_text(json, 2) + "\n";
}

}  // namespace millrace::report
