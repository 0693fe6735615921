// The energy flow model from the command line.

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/folder.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::json;

class EnergyFlowCommands : public InFolder {
protected:
    void SetUp() override {
        InFolder::SetUp();
        const Said made = call({"data", "make", "pairs", "--out", path("pairs"), "--count", "61", "--dimensions", "16"});
        ASSERT_EQ(made.status, 0) << made.err;
        write(
            "flow.toml",
            "device = \"cpu\"\n[model]\nname = \"energy_flow\"\nwidth = 4\nheight = 3\ndepth = 6\nhidden = 6\n[data]\npath = \"" +
                path("pairs") + "\"\n[train]\nepochs = 2\nbatch = 8\n");
    }
    Said flow(const std::string& name, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> words{"train", path("flow.toml"), "--out", path(name)};
        words.insert(words.end(), more.begin(), more.end());
        return call(words);
    }
};

TEST_F(EnergyFlowCommands, TrainEvalAndTheirJsonAgree) {
    const Said trained = flow("run", {"--json"});
    ASSERT_EQ(trained.status, 0) << trained.err;
    EXPECT_NE(trained.err.find("ceiling"), std::string::npos) << trained.err;
    EXPECT_NE(trained.err.find("mapper alone: loss"), std::string::npos) << trained.err;
    EXPECT_EQ(trained.err.find("accuracy"), std::string::npos) << trained.err;
    const Said evaluated = call({"eval", path("run"), "--json"});
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    const Json before = base::json_or_throw(trained.out), after = base::json_or_throw(evaluated.out);
    EXPECT_EQ(after.at("split"), "validation");
    EXPECT_EQ(after.at("samples"), 6);
    EXPECT_EQ(after.at("loss"), before.at("validation_loss"));
    for (const char* key : {"validation_cosine", "cosine_ceiling", "retrieval_at_1", "mapper_loss", "mapper_cosine",
                            "mapper_retrieval_at_1", "flow_steps_used", "flows_created", "flows_projected", "cell_coverage"}) {
        EXPECT_EQ(after.at(key), before.at(key)) << key;
        EXPECT_EQ(after.at("members")[0].at(key), before.at("members")[0].at(key)) << key;
    }
    EXPECT_FALSE(after.contains("accuracy"));
    EXPECT_FALSE(before.contains("test_loss"));
    const Said plain = call({"eval", path("run")});
    EXPECT_NE(plain.out.find("6 validation pairs of pairs"), std::string::npos) << plain.out;
    EXPECT_NE(plain.out.find("flows: 72 created"), std::string::npos) << plain.out;
}

TEST_F(EnergyFlowCommands, ModelsListsTheProfiles) {
    const Said said = call({"models", "--json"});
    ASSERT_EQ(said.status, 0) << said.err;
    std::vector<std::string> presets;
    for (const Json& entry : base::json_or_throw(said.out))
        if (entry.at("model") == "energy_flow") presets.push_back(entry.at("preset"));
    EXPECT_EQ(presets, (std::vector<std::string>{"debug", "experiment", "experiment_v2", "large", "wide"}));
}

TEST_F(EnergyFlowCommands, WrongDataAndSettingsAreRefused) {
    expect_refusal(flow("a", {"--set", "data.path=" + path("data")}), {"data.path", "holds images"});
    expect_refusal(train("b", {"--set", "data.path=" + path("pairs")}), {"data.path", "trained on images"});
    expect_refusal(flow("c", {"--set", "model.headroom=-1"}), {"model.headroom"});
    expect_refusal(flow("d", {"--set", "model.width=4096", "--set", "model.height=4096", "--set", "train.batch=54"}),
                   {"train.batch", "more than a program can hold"});
    for (const char* name : {"a", "b", "c", "d"}) EXPECT_FALSE(std::filesystem::exists(folder_ / name)) << name;
}

TEST_F(EnergyFlowCommands, EvaluationRefusesATestPartAndVectorsOfAnotherWidth) {
    ASSERT_EQ(flow("run", {"--quiet", "--set", "train.steps=1"}).status, 0);
    expect_refusal(call({"eval", path("run"), "--split", "test"}), {"no test part", "--split validation"});
    expect_refusal(call({"predict", path("run"), path("pairs"), "--out", path("x.csv")}),
                   {"predicts nothing about pairs", "eval"});
    ASSERT_EQ(call({"data", "make", "pairs", "--out", path("narrow"), "--count", "61", "--dimensions", "12"}).status, 0);
    expect_refusal(call({"eval", path("run"), "--data", path("narrow")}), {"mapper.weight"});
}

TEST_F(EnergyFlowCommands, PlotsASampleAndItsFlows) {
    ASSERT_EQ(flow("run", {"--quiet", "--set", "train.steps=3"}).status, 0);
    const Said said = call({"eval", path("run"), "--plot", path("deep/pictures"), "--plot-sample", "5", "--plot-flows", "7"});
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_NE(said.out.find("wrote " + path("deep/pictures/sample-5-surface.svg")), std::string::npos) << said.out;
    const auto read = [&](const char* name) {
        std::ifstream in(folder_ / "deep/pictures" / name, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const std::string surface = read("sample-5-surface.svg"), flows = read("sample-5-flows.svg");
    for (const std::string& svg : {surface, flows}) {
        EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
        EXPECT_NE(svg.find("validation sample 5 of 6; cube of 4 x 3 x 6"), std::string::npos);
        EXPECT_NE(svg.find("weights after step 3"), std::string::npos);
        EXPECT_NE(svg.find(">given: "), std::string::npos);
    }
    EXPECT_NE(flows.find("7 of 12 flows drawn"), std::string::npos);
    // Again, as JSON, on top of the old ones: the same bytes. A pass of scores beside it changes nothing.
    const Said again =
        call({"eval", path("run"), "--json", "--plot", path("deep/pictures"), "--plot-sample", "5", "--plot-flows", "7"});
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(read("sample-5-flows.svg"), flows);
    Json json = base::json_or_throw(again.out);
    EXPECT_EQ(json.at("plots").size(), 2u);
    const Json plain = base::json_or_throw(call({"eval", path("run"), "--json"}).out);
    EXPECT_FALSE(plain.contains("plots"));
    EXPECT_EQ(json.at("loss"), plain.at("loss"));
    // Without counts: the first sample, and no more flows than there are.
    ASSERT_EQ(call({"eval", path("run"), "--plot", path("deep/pictures")}).status, 0);
    EXPECT_NE(read("sample-0-flows.svg").find("12 of 12 flows drawn"), std::string::npos);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "deep/pictures"), {}), 4)
        << "nothing temporary is left";
}

TEST_F(EnergyFlowCommands, PlotsThatCannotBeAreRefusedAndNothingIsWritten) {
    ASSERT_EQ(flow("run", {"--quiet", "--set", "train.steps=1"}).status, 0);
    const auto plot = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words{"eval", path("run"), "--plot", path("pictures")};
        words.insert(words.end(), more.begin(), more.end());
        return call(words);
    };
    expect_refusal(plot({"--plot-sample", "6"}), {"no sample 6", "from 0 to 5"});
    expect_refusal(plot({"--plot-sample", "-1"}), {"--plot-sample", "below 0"});
    expect_refusal(plot({"--plot-flows", "-3"}), {"--plot-flows", "below 0"});
    expect_refusal(plot({"--plot-flows", "13"}), {"--plot-flows", "12 flows"});
    EXPECT_EQ(plot({"--plot-flows", "many"}).status, 2);
    EXPECT_EQ(plot({"--plot-sample", "99999999999999999999"}).status, 2);
    expect_refusal(call({"eval", path("run"), "--plot-sample", "1"}), {"--plot-sample", "no --plot"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "pictures"));
    write("taken", "");
    expect_refusal(call({"eval", path("run"), "--plot", path("taken")}), {"taken", "folder"});
    expect_refusal(call({"eval", path("run"), "--plot", path("taken/below")}), {"taken"});
    ASSERT_EQ(train("classifier", {"--quiet"}).status, 0);
    expect_refusal(call({"eval", path("classifier"), "--plot", path("pictures")}), {"nothing to plot", "energy_flow"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "pictures"));
}

}  // namespace
}  // namespace millrace::cli
