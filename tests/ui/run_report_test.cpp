#include "ui/run_report.h"
#include <nlohmann/json.hpp>

#include "base/json.h"

#include "ui/embedded.h"
#include "ui/made_up_runs.h"
#include "ui/run_table.h"

namespace millrace::ui {
namespace {

using namespace made_up;

class RunReport : public InRuns {
protected:
    std::string text() const {
        const auto page = run_report(folder_ / "a");
        EXPECT_TRUE(page.ok());
        return page.ok() ? *page : "";
    }
    static nlohmann::json data_of(const std::string& page) {
        const std::size_t from = page.find("id=\"data\">") + 10;
        return base::json_from(page.substr(from, page.find("</script>", from) - from));
    }
};

TEST_F(RunReport, HoldsTheRunAndLetsItsOwnScriptRunAlone) {
    write_run("a", interval_row(50, 1) + epoch_row(1, 0.9, 0.6));
    write("a/events.jsonl", "{\"time\": 1, \"kind\": \"warning\", \"text\": \"slow\"}\n");
    write("a/nodes.svg", "<svg/>");
    const std::string page = text();
    const auto data = data_of(page);
    EXPECT_EQ(data["run"]["name"], "a");
    EXPECT_EQ(data["run"]["best"], 0.6);
    EXPECT_EQ(data["metrics"]["rows"].size(), 2u);
    EXPECT_EQ(data["events"]["rows"][0]["text"], "slow");
    EXPECT_EQ(data["pictures"][0]["data"], "data:image/svg+xml;base64,PHN2Zy8+");
    EXPECT_NE(page.find("script-src 'sha256-" + base64(bytes_of_digits(report_script_sum())) + "'"), std::string::npos);
    EXPECT_NE(page.find("<script>" + std::string(report_script()) + "</script>"), std::string::npos);
}

TEST_F(RunReport, WhatARunSaysCannotEndTheScriptThatHoldsIt) {
    const std::string bad = "</script><script>document.title='owned'</script><!--";
    write_run("a", epoch_row(1, 0.9, 0.6), R"({"format": 1, "status": "finished", "reason": ")" + bad + "\"}");
    write("a/events.jsonl", "{\"time\": 1, \"kind\": \"warning\", \"text\": \"" + bad + "\"}\n");
    const std::string page = text();
    EXPECT_EQ(page.find("owned'</script>"), std::string::npos);
    EXPECT_EQ(data_of(page)["run"]["reason"], bad);
}

TEST_F(RunReport, OfALongRunEveryEpochIsKeptAndWhatCanBeSeenOfTheRest) {
    std::string rows;
    for (int i = 0; i < 30000; ++i) rows += interval_row(i, i);
    for (int i = 1; i <= 50; ++i) rows += epoch_row(i, 1.0 / i, 0.5);
    write_run("a", rows);
    const auto data = data_of(text());
    EXPECT_LE(data["metrics"]["rows"].size(), 4000u);
    EXPECT_GE(data["metrics"]["rows"].size(), 1500u);
    EXPECT_EQ(std::ranges::count_if(data["metrics"]["rows"], [](const auto& row) { return row["kind"] == "epoch"; }), 50);
}

TEST_F(RunReport, IsWrittenBesideTheRunAndRefusedWhereThereIsNone) {
    write_run("a", "");
    EXPECT_TRUE(write_run_report(folder_ / "a").ok());
    EXPECT_TRUE(fs::exists(folder_ / "a/report.html"));
    EXPECT_FALSE(write_run_report(folder_).ok());
    EXPECT_FALSE(fs::exists(folder_ / "report.html"));
}

TEST_F(RunReport, Base64IsThatOfTheRule) {
    EXPECT_EQ(base64(""), "");
    EXPECT_EQ(base64("f"), "Zg==");
    EXPECT_EQ(base64("fo"), "Zm8=");
    EXPECT_EQ(base64("foo"), "Zm9v");
    EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
    EXPECT_EQ(bytes_of_digits("00ff41"), std::string("\0\xff"
                                                     "A",
                                                     3));
}

class CompareTrainings : public InRuns {};

TEST_F(CompareTrainings, NamesKeysThatDifferScoresAndLossesOfTheSameEpochs) {
    write_run("a", epoch_row(1, 0.9, 0.6) + epoch_row(2, 0.5, 0.8), manifest("finished", "", 0.001));
    write_run("b", epoch_row(1, 0.8, 0.7), manifest("interrupted", "", 0.002));
    const auto both = two_trainings(folder_ / "a", folder_ / "b");
    ASSERT_TRUE(both.has_value());
    const std::string text = trainings_text(both->first, both->second);
    const auto row = [&](const std::string& name) {
        const std::size_t at = text.find("\n" + name);
        return at == std::string::npos ? std::string() : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    };
    EXPECT_NE(row("best").find("0.8 validation_accuracy"), std::string::npos) << text;
    EXPECT_NE(row("best").find("0.7 validation_accuracy"), std::string::npos) << text;
    EXPECT_NE(row("  optim.lr").find("0.001"), std::string::npos) << text;
    EXPECT_NE(row("  optim.lr").find("0.002"), std::string::npos) << text;
    EXPECT_EQ(text.find("train.batch"), std::string::npos) << "it is the same in both";
    EXPECT_NE(row("  1 ").find("0.8"), std::string::npos) << text;
    EXPECT_TRUE(row("  2 ").ends_with("-")) << "there is no such epoch in b: " << text;
    const auto json = trainings_json(both->first, both->second);
    EXPECT_EQ(json["differing_keys"].size(), 1u);
    EXPECT_EQ(json["differing_keys"]["optim.lr"], nlohmann::json({"0.001", "0.002"}));
    EXPECT_EQ(json["before"]["curve"].size(), 2u);
}

TEST_F(CompareTrainings, AreTwoRunsOfTrain) {
    write_run("a", "");
    write_run("recorded", "");
    write("recorded/trace.bin", "");
    write("trace.json", "{}");
    EXPECT_TRUE(two_trainings(folder_ / "a", folder_ / "a").has_value());
    EXPECT_FALSE(two_trainings(folder_ / "a", folder_ / "recorded").has_value());
    EXPECT_FALSE(two_trainings(folder_ / "a", folder_ / "trace.json").has_value());
    EXPECT_FALSE(two_trainings(folder_ / "a", folder_ / "absent").has_value());
}

}  // namespace
}  // namespace millrace::ui
