#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/version.h"
#include "cli/commands.h"
#include "train/bench.h"
#include "train/peers.h"
#include "train/run_settings.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchArguments {
    std::vector<std::string> names;
    std::string device = "auto";
    double seconds = 2;
    int threads = 0;
    bool json = false, no_peers = false, list = false;
};

struct BenchRow {
    train::BenchWorkload workload;
    std::string device, precision;
    train::Timing ours;
    train::PeerTimes peers;

    [[nodiscard]] const train::PeerTime* fastest() const {
        const train::PeerTime* best = nullptr;
        for (const train::PeerTime& peer : peers.peers)
            if (peer.error.empty() && (best == nullptr || peer.ms < best->ms)) best = &peer;
        return best;
    }
};

/// Ours, the peers, ours again: both see the same machine, and a machine that changes shows as spread.
base::Result<BenchRow> measure(const train::BenchWorkload& workload, const train::BenchOptions& options, bool with_peers) {
    BenchRow row;
    row.workload = workload;
    train::BenchOptions half = options;
    half.seconds = with_peers ? options.seconds / 2 : options.seconds;
    MILLRACE_LET(times, train::time_workload(workload, half));
    row.device = times.device;
    row.precision = times.precision;
    if (with_peers) {
        row.peers = train::time_peers(workload, options, times.precision);
        MILLRACE_LET(after, train::time_workload(workload, half));
        times.windows.insert(times.windows.end(), after.windows.begin(), after.windows.end());
    } else {
        row.peers.reason = "--no-peers";
    }
    row.ours = train::timing_of(times.windows);
    return row;
}

Json json_of(const BenchRow& row) {
    Json json{{"name", row.workload.name},
              {"device", row.device.substr(0, row.device.find(':'))},
              {"ours_ms", row.ours.median},
              {"peers", Json::object()}};
    for (const train::PeerTime& peer : row.peers.peers)
        if (peer.error.empty()) json["peers"][peer.name] = peer.ms;
    json["spread"] = (row.ours.high - row.ours.low) / row.ours.median;
    json["ours_low_ms"] = row.ours.low;
    json["ours_high_ms"] = row.ours.high;
    json["windows"] = row.ours.windows;
    json["precision"] = row.precision;
    json["machine"] = row.device;
    if (const train::PeerTime* best = row.fastest()) {
        json["fastest_peer"] = best->name;
        json["ratio"] = best->ms / row.ours.median;
    }
    Json errors = Json::object();
    for (const train::PeerTime& peer : row.peers.peers)
        if (!peer.error.empty()) errors[peer.name] = peer.error;
    if (!errors.empty()) json["peer_errors"] = errors;
    if (!row.peers.reason.empty()) json["no_peer"] = row.peers.reason;
    json["versions"] = {{"millrace", base::version()}, {"peers", row.peers.versions}};
    return json;
}

void print_row(const BenchRow& row) {
    say(fmt::format("{:<30} {:>5} {:>10.4f} {:>6.1f} %", row.workload.name, row.precision, row.ours.median,
                    100 * (row.ours.high - row.ours.low) / row.ours.median));
    const train::PeerTime* best = row.fastest();
    if (best == nullptr) {
        say(fmt::format("  no peer: {}\n", !row.peers.reason.empty() ? row.peers.reason : row.peers.peers.front().error));
        return;
    }
    say(fmt::format(" {:>8.2f}x ", best->ms / row.ours.median));
    for (const train::PeerTime& peer : row.peers.peers) {
        if (peer.error.empty())
            say(fmt::format(" {} {:.4f}", peer.name, peer.ms));
        else
            say(fmt::format(" {} failed ({})", peer.name, peer.error));
    }
    say("\n");
}

void print_header(const BenchRow& first) {
    say(fmt::format("{}{}\n", first.device, first.peers.versions.empty() ? "" : "; peers: " + first.peers.versions));
    say(fmt::format("{:<30} {:>5} {:>10} {:>8} {:>9}  {}\n", "workload", "", "ours ms", "spread", "ratio", "peers ms"));
}

int run_bench(const BenchArguments& given) {
    const auto device = train::choose_device(given.device);
    if (!device.ok()) return report(device.error());
    const auto workloads = train::select_workloads(train::bench_workloads(*device), given.names);
    if (!workloads.ok()) return report(workloads.error());
    if (given.list) {
        for (const train::BenchWorkload& workload : *workloads) say(fmt::format("{}\n", workload.name));
        return 0;
    }
    Json all = Json::array();
    for (const train::BenchWorkload& workload : *workloads) {
        const auto row = measure(workload, {*device, given.threads, given.seconds}, !given.no_peers);
        if (!row.ok()) return report(row.error());
        if (given.json) {
            all.push_back(json_of(*row));
            continue;
        }
        if (&workload == &workloads->front()) print_header(*row);
        print_row(*row);
        std::fflush(stdout);
    }
    if (given.json)
        say(fmt::format("{}\n", all.dump(1)));
    else
        say("milliseconds per training step, median; spread: quartiles over the median; ratio: to the fastest peer\n");
    return 0;
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
    auto given = std::make_shared<BenchArguments>();
    CLI::App* command = app.add_subcommand("bench", "time the training step against PyTorch in the same run");
    command->add_option("NAME", given->names, "workloads; all unless given");
    command->add_flag("--json", given->json, "print a list of {\"name\", \"device\", \"ours_ms\", \"peers\", \"spread\"}");
    command->add_option("--device", given->device, "auto, cpu or cuda")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
        ->capture_default_str();
    command->add_flag("--no-peers", given->no_peers, "time Millrace alone");
    command->add_option("--seconds", given->seconds, "least time measured per row and side")
        ->check(CLI::Range(0.01, 3600.0))
        ->capture_default_str();
    command->add_option("--threads", given->threads, "CPU threads of both sides; 0: one per core")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    command->add_flag("--list", given->list, "name the workloads and stop");
    command->footer(
        "Example:\n  millrace bench collective-debug-b32 --device cpu\n\n"
        "Peers are the scripts in bench/peers (MILLRACE_PEERS), run by MILLRACE_PYTHON, /usr/bin/python3 or python3.");
    command->callback([given, &context] { context.exit_status = run_bench(*given); });
}

}  // namespace millrace::cli
