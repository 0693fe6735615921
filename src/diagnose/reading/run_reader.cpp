#include "diagnose/reading/run_reader.h"

#include <algorithm>
#include <array>

namespace millrace::diagnose {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kByTheClock{"sample", "interval", "components", "loader_spike"};

constexpr std::uint64_t kLongestStride = std::uint64_t{1} << 40;

bool comes_by_the_clock(const record::MetricsRow& row) {
    const record::MetricValue* kind = row.find("kind");
    const auto* text = kind != nullptr ? std::get_if<std::string>(kind) : nullptr;
    return text != nullptr && std::ranges::find(kByTheClock, *text) != kByTheClock.end();
}

/// Takes the lines of one stream and keeps what the limits allow.
class RowKeeper {
public:
    explicit RowKeeper(const ReadLimits& limits) : limits_(limits) {}

    void take(std::string_view line) {
        auto row = record::parse_row(line);
        if (!row) {
            ++stream_.skipped;
            return;
        }
        ++stream_.total;
        const bool by_the_clock = comes_by_the_clock(*row);
        if (by_the_clock && seen_++ % stride_ != 0) return;
        // A row that goes over the limit makes room for itself; when all there is has to stay, it goes.
        while (!full_ && over(line.size())) full_ = !thin();
        if (over(line.size()) || (by_the_clock && (seen_ - 1) % stride_ != 0)) return;
        stream_.rows.push_back(std::move(*row));
        about_.push_back({line.size(), by_the_clock});
        bytes_ += line.size();
    }

    RunStream finish(io::LineCounts counts) {
        stream_.torn = counts.torn;
        stream_.skipped += counts.too_long + (counts.torn ? 1 : 0);
        return std::move(stream_);
    }

private:
    struct About {
        std::size_t bytes;
        bool by_the_clock;
    };

    [[nodiscard]] bool over(std::size_t more) const {
        return stream_.rows.size() + 1 > limits_.rows || bytes_ + more > limits_.text_bytes;
    }

    /// Lets every second of the rows that come by the clock go; false when none did.
    bool thin() {
        std::size_t kept = 0, clocked = 0;
        bytes_ = 0;
        const std::size_t before = about_.size();
        for (std::size_t i = 0; i < before; ++i) {
            if (about_[i].by_the_clock && clocked++ % 2 == 1) continue;
            bytes_ += about_[i].bytes;
            if (kept != i) {
                about_[kept] = about_[i];
                stream_.rows[kept] = std::move(stream_.rows[i]);
            }
            ++kept;
        }
        about_.resize(kept);
        stream_.rows.resize(kept);
        if (kept == before || stride_ > kLongestStride) return false;
        stride_ *= 2;
        return true;
    }

    ReadLimits limits_;
    RunStream stream_;
    std::vector<About> about_;  ///< per row kept
    std::size_t bytes_ = 0;
    bool full_ = false;                    ///< thinning brings nothing any more
    std::uint64_t seen_ = 0, stride_ = 1;  ///< rows that come by the clock: seen, and which share of them is kept
};

/// An absent file is an empty stream: a run can be killed before it has one.
base::Result<RunStream> read_stream(const io::Path& path, const ReadLimits& limits) {
    RowKeeper keeper(limits);
    std::error_code ignored;
    if (fs::symlink_status(path, ignored).type() == fs::file_type::not_found) return keeper.finish({});
    MILLRACE_LET(counts, io::read_lines(
                             path, [&](std::string_view line) { keeper.take(line); }, limits.line_bytes));
    return keeper.finish(counts);
}

}  // namespace

RunStream parse_stream(std::string_view text, const ReadLimits& limits) {
    RowKeeper keeper(limits);
    io::LineSplitter splitter(limits.line_bytes, [&](std::string_view line) { keeper.take(line); });
    splitter.feed(text);
    return keeper.finish({splitter.too_long(), splitter.torn()});
}

base::Result<RunContents> read_run(const io::Path& folder, const ReadLimits& limits) {
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) return base::Error{"no such run directory", folder.string()};
    if (!fs::exists(folder / "manifest.json", ignored))
        return base::Error{"holds no run: manifest.json is missing", folder.string()};
    RunContents run;
    // The lock first: a run that ends while we read is `finished` then, not `running` without a process.
    run.being_written = record::is_being_written(folder);
    MILLRACE_LET(manifest, record::read_manifest(folder));
    run.manifest = std::move(manifest);
    // Resumed between the two looks?
    if (run.was_killed()) run.being_written = record::is_being_written(folder);
    MILLRACE_LET(metrics, read_stream(folder / "metrics.jsonl", limits));
    MILLRACE_LET(samples, read_stream(folder / "samples.jsonl", limits));
    run.metrics = std::move(metrics);
    run.samples = std::move(samples);
    return run;
}

}  // namespace millrace::diagnose
