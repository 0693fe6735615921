#include <fmt/format.h>

#include <map>
#include <memory>

#include "base/log.h"
#include "bench/bench.h"
#include "bench/row_recipe.h"
#include "bench/rows.h"
#include "cli/commands.h"
#include "io/file.h"
#include "train/run_settings.h"

namespace millrace::cli {
namespace {

struct BenchArguments {
    std::vector<std::string> names;
    std::string device = "auto", points;
    bool json = false, no_peers = false, list = false, no_fusion = false, no_ceiling = false;
    bench::Options options;
};

/// The rows of one run. What they share is measured once: the peers of a workload, the ceiling of a precision.
class Bench {
public:
    Bench(bench::Options options, bool with_peers, bool with_ceiling)
        : options_(std::move(options)), with_peers_(with_peers), with_ceiling_(with_ceiling) {}

    /// Ours, the peers, ours again: both see the same machine, and a machine that changes shows as spread.
    base::Result<bench::Row> measure(const bench::Point& point) {
        const bench::Workload& workload = point.workload;
        bench::Options options = options_of(point);
        bench::Row row;
        row.workload = workload;
        row.settings = options.settings;
        bench::Options half = options;
        half.seconds = with_peers_ ? options.seconds / 2 : options.seconds;
        MILLRACE_SET(row.ours, bench::time_workload(workload, half));
        if (with_peers_) {
            row.peers = peers_of(workload, options, row.ours.precision);
            MILLRACE_LET(after, bench::time_workload(workload, half));
            row.ours.add(after);
        } else {
            row.peers.reason = "--no-peers";
        }
        // A product in f32 is no measure for it
        if (with_ceiling_ && row.ours.precision != "tf32") MILLRACE_SET(row.ceiling, ceiling_of(row.ours.precision));
        return row;
    }

    /// The command line's, and over them those of the point.
    [[nodiscard]] bench::Options options_of(const bench::Point& point) const {
        bench::Options options = options_;
        options.settings.insert(options.settings.end(), point.settings.begin(), point.settings.end());
        return options;
    }

private:
    bench::PeerTimes peers_of(const bench::Workload& workload, const bench::Options& options, const std::string& precision) {
        const auto command = bench::peer_command(workload, options, precision);
        if (!command.ok()) return {{}, command.error().text(), {}};
        const std::string key = fmt::format("{}", fmt::join(*command, " "));
        const auto known = peers_.find(key);
        return known != peers_.end() ? known->second : peers_.emplace(key, bench::run_peers(*command)).first->second;
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

/// One row after the other, as a table or as one list.
base::Result<int> print_rows(Bench& bench, const std::vector<bench::Point>& points, bool json) {
    std::vector<bench::Row> rows;
    for (const bench::Point& point : points) {
        MILLRACE_SET(rows.emplace_back(), bench.measure(point));
        if (json) continue;
        if (rows.size() == 1) say(bench::table_header(rows.front()));
        say(bench::table_line(rows.back()));
        say(bench::kernel_lines(rows.back()));
        std::fflush(stdout);
    }
    say(json ? bench::rows_json(rows) : bench::table_legend());
    return 0;
}

/// A line of JSON for each point as it is done. One that cannot run, for its memory say, does not end the scan.
int print_points(Bench& bench, const std::vector<bench::Point>& points) {
    int status = 0;
    for (const bench::Point& point : points) {
        const auto row = bench.measure(point);
        if (!row.ok()) status = 1;
        say(row.ok() ? bench::row_line(*row) : bench::failure_line(point, row.error().text()));
        std::fflush(stdout);
    }
    return status;
}

base::Result<std::vector<bench::Point>> points_of(const BenchArguments& given, ops::DeviceKind device) {
    const std::vector<bench::Workload> all = bench::all_workloads(device);
    if (!given.points.empty()) {
        if (!given.names.empty()) return base::Error{"--points names the rows; leave out " + given.names.front()};
        MILLRACE_LET(text, io::read_text(given.points));
        return bench::read_points(text, given.points, all);
    }
    MILLRACE_LET(workloads, bench::select_workloads(all, given.names));
    std::vector<bench::Point> points;
    for (bench::Workload& workload : workloads) points.push_back({std::move(workload), {}});
    return points;
}

base::Result<int> run_bench(BenchArguments given) {
    MILLRACE_LET(device, train::choose_device(given.device));
    if (given.list) {
        for (const bench::Workload& workload : bench::all_workloads(device))
            say(workload.name + (workload.on_request ? "  only when named\n" : "\n"));
        return 0;
    }
    MILLRACE_LET(points, points_of(given, device));
    given.options.device = device;
    given.options.activity = given.points.empty();
    if (given.no_fusion) given.options.rewrites_off = {"all"};
    Bench bench(given.options, !given.no_peers, !given.no_ceiling);
    for (const bench::Point& point : points) MILLRACE_TRY(bench::row_recipe(point.workload, bench.options_of(point)));
    if (!given.points.empty()) return print_points(bench, points);
    return print_rows(bench, points, given.json);
}

}  // namespace

void add_bench(const Command& program) {
    auto [command, given] =
        program.command<BenchArguments>("bench", "time the training step against PyTorch in the same run", run_bench);
    given.options.seconds = 2;
    command.option("NAME", given.names, "workloads; unless given, all but those that --list marks");
    command.option("--points FILE", given.points, "a row for every line NAME KEY=VALUE ...; prints a line of JSON after each");
    command.flag("--json", given.json, "print a list of {\"name\", \"device\", \"ours_ms\", \"peers\", \"spread\"}");
    command.option("--device", given.device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"}).show_default();
    command.flag("--no-peers", given.no_peers, "time Millrace alone");
    command.option("--peers", given.options.peer_modes, "modes of the peers, such as eager,graph; default: by workload");
    command.option("--seconds", given.options.seconds, "least time measured per row and side")
        .between(0.01, 3600.0)
        .show_default();
    command.option("--threads", given.options.threads, "CPU threads of both sides; 0: one per core")
        .between(0, 1024)
        .show_default();
    command.option(
        "--set", given.options.settings,
        "change a key of the workloads' recipe; peers take the same shape, or the row says which key they cannot follow");
    command.option("--precision", given.options.precision, "auto, f32, bf16 or f16")
        .one_of({"auto", "f32", "bf16", "f16"})
        .show_default();
    command.flag("--no-fusion", given.no_fusion, "a GPU runs every operator by itself");
    command.flag("--no-ceiling", given.no_ceiling, "do not time a large product beside the rows");
    command.flag("--parts", given.options.parts, "JSON: also the times of a step's parts");
    command.flag("--kernels", given.options.kernels, "also the time of every kernel alone, its form and what was predicted");
    command.option("--form OPERATOR=FORM", given.options.forms,
                   "take this form of an operator where it applies on CUDA: dense_forward=tiles");
    command.flag("--list", given.list, "name every workload and stop");
    command.footer(
        "Example:\n  millrace bench --list\n  millrace bench NAME --set train.batch=512 --set members=4\n"
        "  millrace bench NAME --set model.width=256 --set model.heads=8 --set data.length=256\n\n"
        "Peers are the scripts in bench/peers (MILLRACE_PEERS), run by MILLRACE_PYTHON, /usr/bin/python3 or python3.\n"
        "MILLRACE_CPU=sse2|avx2|avx512|neon forces the kernels of the CPU instead of the fastest that it can run.");
}

}  // namespace millrace::cli
