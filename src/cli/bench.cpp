#include <fmt/format.h>

#include <map>
#include <memory>

#include "base/log.h"
#include "bench/product_ceiling.h"
#include "bench/rows.h"
#include "cli/commands.h"
#include "train/run_settings.h"

namespace millrace::cli {
namespace {

struct BenchArguments {
    std::vector<std::string> names;
    std::string device = "auto";
    bool json = false, no_peers = false, list = false, no_fusion = false, no_ceiling = false;
    bench::Options options;
};

/// The rows of one run. What they share is measured once: the peers of a workload, the ceiling of a precision.
class Bench {
public:
    Bench(bench::Options options, bool with_peers, bool with_ceiling)
        : options_(std::move(options)), with_peers_(with_peers), with_ceiling_(with_ceiling) {}

    /// Ours, the peers, ours again: both see the same machine, and a machine that changes shows as spread.
    base::Result<bench::Row> measure(const bench::Workload& workload) {
        bench::Row row;
        row.workload = workload;
        row.settings = options_.settings;
        bench::Options half = options_;
        half.seconds = with_peers_ ? options_.seconds / 2 : options_.seconds;
        MILLRACE_LET(times, bench::time_workload(workload, half));
        row.ours = std::move(times);
        if (with_peers_) {
            row.peers = peers_of(workload, row.ours.precision);
            MILLRACE_LET(after, bench::time_workload(workload, half));
            row.ours.add(after);
        } else {
            row.peers.reason = options_.settings.empty() ? "--no-peers" : "--set changes our side alone";
        }
        if (with_ceiling_) {
            MILLRACE_LET(ceiling, ceiling_of(row.ours.precision));
            row.ceiling = ceiling;
        }
        return row;
    }

private:
    const bench::PeerTimes& peers_of(const bench::Workload& workload, const std::string& precision) {
        const std::string key =
            fmt::format("{} {} {} {} {}", workload.model, workload.peer_preset.empty() ? workload.preset : workload.peer_preset,
                        workload.batch, workload.members, precision);
        const auto known = peers_.find(key);
        return known != peers_.end() ? known->second
                                     : peers_.emplace(key, bench::time_peers(workload, options_, precision)).first->second;
    }

    base::Result<double> ceiling_of(const std::string& precision) {
        if (const auto known = ceilings_.find(precision); known != ceilings_.end()) return known->second;
        const bool tf32 = precision == "tf32";
        MILLRACE_LET(backend, ops::make_backend(options_.device, {.threads = options_.threads, .tf32 = tf32}));
        MILLRACE_LET(chosen, train::choose_precision(tf32 ? "f32" : precision, options_.device));
        MILLRACE_LET(rate, bench::product_ceiling(*backend, chosen, bench::ceiling_size(options_.device)));
        return ceilings_.emplace(precision, rate).first->second;
    }

    bench::Options options_;
    bool with_peers_, with_ceiling_;
    std::map<std::string, bench::PeerTimes> peers_;
    std::map<std::string, double> ceilings_;
};

base::Result<int> run_bench(BenchArguments given) {
    MILLRACE_LET(device, train::choose_device(given.device));
    if (given.list) {
        for (const bench::Workload& workload : bench::all_workloads(device))
            say(workload.name + (workload.on_request ? "  only when named\n" : "\n"));
        return 0;
    }
    MILLRACE_LET(workloads, bench::select_workloads(bench::all_workloads(device), given.names));
    given.options.device = device;
    if (given.no_fusion) given.options.rewrites_off = {"all"};
    Bench bench(given.options, !given.no_peers && given.options.settings.empty(), !given.no_ceiling);
    std::vector<bench::Row> rows;
    for (const bench::Workload& workload : workloads) {
        MILLRACE_LET(row, bench.measure(workload));
        rows.push_back(std::move(row));
        if (given.json) continue;
        if (rows.size() == 1) say(bench::table_header(rows.front()));
        say(bench::table_line(rows.back()));
        std::fflush(stdout);
    }
    say(given.json ? bench::rows_json(rows) : bench::table_legend());
    return 0;
}

}  // namespace

void add_bench(const Command& program) {
    auto given = std::make_shared<BenchArguments>();
    given->options.seconds = 2;
    const Command command = program.command("bench", "time the training step against PyTorch in the same run");
    command.option("NAME", given->names, "workloads; unless given, all but those that --list marks");
    command.flag("--json", given->json, "print a list of {\"name\", \"device\", \"ours_ms\", \"peers\", \"spread\"}");
    command.option("--device", given->device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"}).show_default();
    command.flag("--no-peers", given->no_peers, "time Millrace alone");
    command.option("--peers", given->options.peer_modes, "modes of the peers, such as eager,graph; default: by workload");
    command.option("--seconds", given->options.seconds, "least time measured per row and side")
        .between(0.01, 3600.0)
        .show_default();
    command.option("--threads", given->options.threads, "CPU threads of both sides; 0: one per core")
        .between(0, 1024)
        .show_default();
    command.option("--set", given->options.settings, "change a key of the workloads' recipe; no peers then").one_value_each();
    command.option("--precision", given->options.precision, "auto, f32, bf16 or f16")
        .one_of({"auto", "f32", "bf16", "f16"})
        .show_default();
    command.flag("--no-fusion", given->no_fusion, "a GPU runs every operator by itself");
    command.flag("--no-ceiling", given->no_ceiling, "do not time a large product beside the rows");
    command.flag("--parts", given->options.parts, "JSON: also the times of a step's parts");
    command.flag("--list", given->list, "name every workload and stop");
    command.footer(
        "Example:\n  millrace bench --list\n  millrace bench ROW --device cpu --set train.batch=64\n\n"
        "Peers are the scripts in bench/peers (MILLRACE_PEERS), run by MILLRACE_PYTHON, /usr/bin/python3 or python3.\n"
        "MILLRACE_CPU=sse2|avx2|avx512|neon forces the kernels of the CPU instead of the fastest that it can run.");
    command.action([given] { return run_bench(*given); });
}

}  // namespace millrace::cli
