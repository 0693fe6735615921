#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include "fake_clock.h"
#include "places.h"
#include "record/sink_rig.h"
#include "record/sinks.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

using namespace test_rig;

/// Checks text against the grammar of the format, strictly: HELP, TYPE, then the values of one metric together, each name and
/// label set once, and the suffixes that the conventions ask for. Empty when nothing is wrong.
std::string complaint_about(const std::string& text) {
    static const std::regex help("# HELP ([a-z_][a-z0-9_]*) ((?:[^\\\\]|\\\\\\\\|\\\\n)+)");
    static const std::regex type("# TYPE ([a-z_][a-z0-9_]*) (gauge|counter)");
    static const std::regex value(
        "([a-z_][a-z0-9_]*)(\\{[a-z]+=\"(?:[^\"\\\\\n]|\\\\\\\\|\\\\n|\\\\\")*\"(?:,[a-z]+=\"(?:[^\"\\\\\n]|\\\\\\\\|\\\\n|"
        "\\\\\")*\")*\\})? "
        "(NaN|[+-]Inf|-?[0-9]+(?:\\.[0-9]+)?(?:e[+-][0-9]+)?)");
    if (!text.empty() && text.back() != '\n') return "the last line has no end";
    std::set<std::string> names, series;
    std::string open, typed;
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        const std::string line = text.substr(at, end - at);
        std::smatch found;
        if (std::regex_match(line, found, help)) {
            open = found[1];
            typed.clear();
            if (!names.insert(open).second) return "twice: " + line;
        } else if (std::regex_match(line, found, type)) {
            if (found[1] != open) return "TYPE without HELP: " + line;
            typed = found[2];
            if (open.ends_with("_total") != (typed == "counter")) return "suffix: " + line;
        } else if (std::regex_match(line, found, value)) {
            if (found[1] != open || typed.empty()) return "value before its TYPE: " + line;
            if (!series.insert(found[1].str() + found[2].str()).second) return "series twice: " + line;
            if (!open.starts_with("millrace_")) return "prefix: " + line;
        } else {
            return "no line of the format: " + line;
        }
    }
    return {};
}

std::string promtool() {
    const io::Path built = testing::program_folder() / "tools/promtool";
    if (std::filesystem::exists(built)) return "'" + built.string() + "'";
    return run_command("command -v promtool").status == 0 ? "promtool" : "";
}

TEST(PrometheusText, NamesHaveBaseUnitsAndSuffixes) {
    const auto name = [](std::string_view metric) { return prometheus_name(*find_metric(metric)); };
    EXPECT_EQ(name("gpu/sm_active_percent"), "millrace_gpu_sm_active_ratio");
    EXPECT_EQ(name("gpu/energy_joules"), "millrace_gpu_energy_joules_total");
    EXPECT_EQ(name("gpu/power_watts"), "millrace_gpu_power_watts");
    EXPECT_EQ(name("gpu/sm_clock_mhz"), "millrace_gpu_sm_clock_hertz");
    EXPECT_EQ(name("gpu/temperature_celsius"), "millrace_gpu_temperature_celsius");
    EXPECT_EQ(name("ram/used_bytes"), "millrace_ram_used_bytes");
    EXPECT_EQ(name("disk/read_bytes_per_second"), "millrace_disk_read_bytes_per_second");
    EXPECT_EQ(name("core/utilization_percent"), "millrace_core_utilization_ratio");
    EXPECT_EQ(name("step_ms_p50"), "millrace_train_step_p50_seconds");
    EXPECT_EQ(name("component/forward_ms"), "millrace_train_component_forward_seconds");
    EXPECT_EQ(name("loss"), "millrace_train_loss");
    EXPECT_EQ(name("accuracy"), "millrace_train_accuracy_ratio");
    EXPECT_EQ(name("sampler/ticks"), "millrace_sampler_ticks_total");
    std::set<std::string> names;
    for (const MetricInfo& metric : metric_table()) EXPECT_TRUE(names.insert(prometheus_name(metric)).second) << metric.name;
}

TEST(PrometheusText, ValuesAreScaledAndLabelled) {
    PrometheusBoard board(two_gpus());
    board.take(row_of(busy_sample(0)));
    board.take(training_row(RowKind::kInterval, 3, 0.5));
    const std::string text = board.text();
    EXPECT_EQ(complaint_about(text), "");
    for (const char* line :
         {"millrace_cpu_utilization_ratio 0.4525\n", "millrace_core_utilization_ratio{core=\"4\"} 0.905\n",
          "millrace_gpu_sm_clock_hertz{gpu=\"0\",uuid=\"GPU-0\",name=\"Wheel 9000, \\\"fast\\\"\"} 1980000000\n",
          "millrace_gpu_lost{gpu=\"1\",uuid=\"GPU-1\",name=\"Wheel\\\\1\\n\"} 0\n", "millrace_gpu_energy_joules_total{gpu=\"0\",",
          "# TYPE millrace_gpu_energy_joules_total counter\n", "millrace_train_loss 0.5\n",
          "millrace_train_loss{member=\"1\"} 0.25\n", "millrace_train_step_p50_seconds 0.0025\n"})
        EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
}

TEST(PrometheusText, ASampleTakesAwayWhatItNoLongerHas) {
    PrometheusBoard board(two_gpus());
    EXPECT_EQ(board.text(), "");
    board.take(training_row(RowKind::kInterval, 3, 0.5));
    board.take(row_of(busy_sample(0)));
    board.take(row_of(sense::Sample{}));
    const std::string text = board.text();
    EXPECT_EQ(text.find("millrace_gpu"), std::string::npos) << "a GPU that is not read shows no old figures";
    EXPECT_NE(text.find("millrace_train_loss 0.5\n"), std::string::npos);
}

TEST(PrometheusText, TheWholeTableKeepsToTheGrammar) {
    PrometheusBoard board(two_gpus());
    for (const SinkRow& row : everything()) board.take(row);
    EXPECT_EQ(complaint_about(board.text()), "");
    board.take(training_row(RowKind::kInterval, 3, std::numeric_limits<double>::quiet_NaN()));
    EXPECT_NE(board.text().find("millrace_train_loss NaN\n"), std::string::npos);
    board.take(training_row(RowKind::kInterval, 3, -std::numeric_limits<double>::infinity()));
    EXPECT_NE(board.text().find("millrace_train_loss -Inf\n"), std::string::npos);
    EXPECT_EQ(complaint_about(board.text()), "");
}

TEST(PrometheusText, TheGrammarOfThisTestIsStrict) {
    const std::string good = "# HELP millrace_a A.\n# TYPE millrace_a gauge\nmillrace_a 1\n";
    EXPECT_EQ(complaint_about(good), "");
    EXPECT_NE(complaint_about(good + "millrace_a 1\n"), "");
    EXPECT_NE(complaint_about(good + good), "");
    EXPECT_NE(complaint_about(good + "millrace_b 1\n"), "");
    EXPECT_NE(complaint_about(good + "millrace_a{gpu=\"0} 1\n"), "");
    EXPECT_NE(complaint_about(good + "millrace_a{gpu=\"\"\"} 1\n"), "");
    EXPECT_NE(complaint_about(good + "millrace_a{gpu=\"0\"} nan\n"), "");
    EXPECT_NE(complaint_about("# HELP millrace_a A.\n# TYPE millrace_a counter\nmillrace_a 1\n"), "");
}

TEST(PrometheusText, PromtoolHasNothingToSay) {
    const std::string tool = promtool();
    if (tool.empty()) GTEST_SKIP() << "promtool is not here; `tools/setup --telemetry` brings it";
    const test::TemporaryFolder folder;
    PrometheusBoard board(two_gpus());
    for (const SinkRow& row : everything()) board.take(row);
    ASSERT_TRUE(io::write_atomically(folder / "a.prom", board.text()).ok());
    const Outcome checked = run_command(tool + " check metrics < '" + (folder / "a.prom").string() + "'");
    EXPECT_EQ(checked.status, 0) << checked.output;
    EXPECT_EQ(checked.output, "");
    ASSERT_TRUE(io::write_atomically(folder / "bad.prom", "millrace_a_total{ 1\n").ok());
    EXPECT_NE(run_command(tool + " check metrics < '" + (folder / "bad.prom").string() + "'").status, 0);
}

TEST(PrometheusFile, IsReplacedAtMostOnceASecondAndOnFlush) {
    const test::TemporaryFolder folder;
    base::FakeClock clock;
    auto sink = prometheus_file_sink(folder / "a.prom", two_gpus(), clock);
    ASSERT_TRUE(sink.ok());
    EXPECT_EQ(*io::read_text(folder / "a.prom"), "");
    const auto shows = [&](double loss) {
        return io::read_text(folder / "a.prom")->find("millrace_train_loss " + std::to_string(static_cast<int>(loss)) + "\n") !=
               std::string::npos;
    };
    ASSERT_TRUE((*sink)->write(training_row(RowKind::kInterval, 1, 1)).ok());
    EXPECT_TRUE(shows(1));
    clock.advance(std::chrono::milliseconds{999});
    ASSERT_TRUE((*sink)->write(training_row(RowKind::kInterval, 2, 2)).ok());
    EXPECT_TRUE(shows(1));
    ASSERT_TRUE((*sink)->flush().ok());
    EXPECT_TRUE(shows(2));
    clock.advance(std::chrono::milliseconds{1000});
    ASSERT_TRUE((*sink)->write(training_row(RowKind::kInterval, 3, 3)).ok());
    EXPECT_TRUE(shows(3));
    EXPECT_EQ(complaint_about(*io::read_text(folder / "a.prom")), "");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator{}), 1);
}

}  // namespace
}  // namespace millrace::record
