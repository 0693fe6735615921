#include "bench/rows.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/version.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

double spread_of(const Timing& timing) { return (timing.high - timing.low) / timing.median; }

Json work_json(const Row& row) {
    Json work{{"flop", row.ours.flops}};
    const auto rate = [&](const char* name, const char* share, const std::optional<double>& value) {
        if (!value) return;
        work[name] = *value / 1e12;
        if (row.ceiling) work[share] = *value / *row.ceiling;
    };
    rate("tflops", "of_gemm", row.rate());
    if (const auto& flow = row.ours.work) {
        work["flow_steps"] = flow->done;
        work["flow_steps_all"] = flow->all;
        work["steps_used"] = flow->steps_used;
        work["flop_per_flow_step"] = flow->all > 0 ? row.ours.flops / flow->all : 0;
    }
    rate("counted_tflops", "counted_of_gemm", row.counted_rate());
    return work;
}

Json row_json(const Row& row) {
    const Timing timing = row.timing();
    Json json{{"name", row.workload.name},
              {"device", row.ours.device.substr(0, row.ours.device.find(':'))},
              {"ours_ms", timing.median},
              {"peers", Json::object()}};
    for (const PeerTime& peer : row.peers.peers)
        if (peer.error.empty()) json["peers"][peer.name] = peer.ms;
    json["spread"] = spread_of(timing);
    json["ours_low_ms"] = timing.low;
    json["ours_high_ms"] = timing.high;
    json["windows"] = timing.windows;
    json["precision"] = row.ours.precision;
    json["machine"] = row.ours.device;
    if (const PeerTime* best = row.fastest()) {
        json["fastest_peer"] = best->name;
        json["ratio"] = *row.ratio();
    }
    if (row.workload.bar > 0) json["bar"] = row.workload.bar;
    if (!row.settings.empty()) json["settings"] = row.settings;
    json["batch"] = row.ours.batch;
    json["parameters"] = row.ours.parameters;
    json["samples_per_second"] = 1e3 * row.ours.batch / timing.median;
    json["work"] = work_json(row);
    const auto add = [&](const char* name, const auto& value) {
        if (value) json[name] = *value;
    };
    if (row.ceiling) json["gemm_tflops"] = *row.ceiling / 1e12;
    add("idle", row.ours.idle);
    add("sm_active", row.ours.sm_active);
    add("tensor_active", row.ours.tensor_active);
    json["memory_bytes"] = row.ours.memory;
    json["planned_bytes"] = row.ours.planned;
    add("memory_growth_bytes", row.ours.memory_growth);
    if (row.ours.parts)
        for (int i = 0; i < tape::kPhaseCount; ++i)
            json["parts_ms"][tape::kPhaseNames[static_cast<std::size_t>(i)]] = row.ours.parts->of(static_cast<tape::Phase>(i));
    for (const tape::KernelTime& kernel : row.ours.kernels) {
        json["kernels"].push_back({{"records", kernel.text}, {"us", kernel.microseconds}});
        if (!kernel.form.empty()) json["kernels"].back().update({{"form", kernel.form}, {"predicted_us", kernel.predicted}});
    }
    Json errors = Json::object();
    for (const PeerTime& peer : row.peers.peers)
        if (!peer.error.empty()) errors[peer.name] = peer.error;
    if (!errors.empty()) json["peer_errors"] = errors;
    if (!row.peers.reason.empty()) json["no_peer"] = row.peers.reason;
    json["versions"] = {{"millrace", base::version()}, {"peers", row.peers.versions}};
    return json;
}

std::string percent(const std::optional<double>& value, double scale, int digits) {
    return value ? fmt::format("{:.{}f} %", scale * *value, digits) : "-";
}

/// "TFLOP/s (share of the ceiling)".
std::string rate_text(const std::optional<double>& rate, const std::optional<double>& ceiling) {
    if (!rate) return "-";
    const double tera = *rate / 1e12;
    const std::string text = tera >= 10 ? fmt::format("{:.0f}", tera) : fmt::format("{:.3f}", tera);
    return ceiling ? fmt::format("{} ({:.0f} %)", text, 100 * *rate / *ceiling) : text;
}

constexpr const char* kColumns = "{:<29} {:>4} {:>10} {:>7} {:>7} {:>5} {:>12} {:>12} {:>7} {:>5} {:>6}  {}\n";

}  // namespace

const PeerTime* Row::fastest() const {
    const PeerTime* best = nullptr;
    for (const PeerTime& peer : peers.peers)
        if (peer.error.empty() && (best == nullptr || peer.ms < best->ms)) best = &peer;
    return best;
}

std::optional<double> Row::ratio() const {
    const PeerTime* best = fastest();
    return best == nullptr ? std::nullopt : std::optional(best->ms / timing().median);
}

std::optional<double> Row::rate() const {
    if (!(ours.flops > 0) || (ours.work && !ours.work->all_computed)) return std::nullopt;
    return ours.flops / (1e-3 * timing().median);
}

std::optional<double> Row::counted_rate() const {
    if (!ours.work) return std::nullopt;
    return ours.flops * (ours.work->all > 0 ? ours.work->done / ours.work->all : 0) / (1e-3 * timing().median);
}

std::string rows_json(const std::vector<Row>& rows) {
    Json all = Json::array();
    for (const Row& row : rows) all.push_back(row_json(row));
    return base::json_text(all, 1) + "\n";
}

std::string row_line(const Row& row) { return base::json_text(row_json(row)) + "\n"; }

std::string failure_line(const Point& point, const std::string& error) {
    return base::json_text(Json{{"name", point.workload.name}, {"settings", point.settings}, {"error", error}}) + "\n";
}

std::string table_header(const Row& first) {
    std::string text = first.ours.device;
    if (!first.settings.empty()) text += fmt::format("; {}", fmt::join(first.settings, " "));
    if (!first.peers.versions.empty()) text += "; peers: " + first.peers.versions;
    if (first.ceiling) text += fmt::format("; a large {} product: {:.4g} TFLOP/s", first.ours.precision, *first.ceiling / 1e12);
    return text + "\n" +
           fmt::format(fmt::runtime(kColumns), "workload", "", "ours ms", "spread", "ratio", "bar", "TFLOP/s", "counted", "idle",
                       "SM", "tensor", "peers ms");
}

std::string table_line(const Row& row) {
    std::string peers;
    for (const PeerTime& peer : row.peers.peers) {
        if (!peers.empty()) peers += "  ";
        peers += peer.error.empty() ? fmt::format("{} {:.4f}", peer.name, peer.ms)
                                    : fmt::format("{} failed ({})", peer.name, peer.error);
    }
    if (row.peers.peers.empty()) peers = "no peer: " + row.peers.reason;
    const Timing timing = row.timing();
    const std::optional<double> ratio = row.ratio();
    return fmt::format(fmt::runtime(kColumns), row.workload.name, row.ours.precision, fmt::format("{:.4f}", timing.median),
                       fmt::format("{:.1f} %", 100 * spread_of(timing)), ratio ? fmt::format("{:.2f}x", *ratio) : "-",
                       row.workload.bar > 0 ? fmt::format("{:g}x", row.workload.bar) : "-", rate_text(row.rate(), row.ceiling),
                       rate_text(row.counted_rate(), row.ceiling), percent(row.ours.idle, 100, 2),
                       percent(row.ours.sm_active, 1, 0), percent(row.ours.tensor_active, 1, 0), peers);
}

std::string kernel_lines(const Row& row) {
    std::string text;
    for (const tape::KernelTime& kernel : row.ours.kernels)
        text += fmt::format("  {:8.2f} us  {}{}\n", kernel.microseconds, kernel.text,
                            kernel.form.empty() ? "" : fmt::format("; {}, {:.1f} us predicted", kernel.form, kernel.predicted));
    return text;
}

std::string table_legend() {
    return "milliseconds per training step, median; spread: quartiles over the median; ratio: to the fastest peer, bar: what it "
           "has to "
           "be\nTFLOP/s of the matrix products of all rows, counted: of the flow-steps that the device counted, (share of a "
           "large "
           "product measured in this run)\nidle: share of a step between two launches; SM, tensor: active by the chip's counters "
           "during the windows\n";
}

}  // namespace millrace::bench
