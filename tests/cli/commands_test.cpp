#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"
#include "base/version.h"
#include "cli/folder.h"

namespace millrace::cli {
namespace {

using Commands = InFolder;
using Json = nlohmann::json;

TEST_F(Commands, VersionAndHelp) {
    EXPECT_EQ(call({"--version"}).out, std::string("millrace ") + base::version() + "\n");
    const Said help = call({"--help"});
    EXPECT_EQ(help.status, 0);
    for (const char* word : {"train", "eval", "models", "data", "bench", "tune", "watch", "Examples"})
        EXPECT_NE(help.out.find(word), std::string::npos) << word;
    for (const char* command : {"train", "eval", "models", "bench", "tune", "watch"})
        EXPECT_EQ(call({command, "--help"}).status, 0) << command;
}

TEST_F(Commands, ModelsListsTheKnownCounts) {
    const Said said = call({"models", "--json"});
    ASSERT_EQ(said.status, 0) << said.err;
    std::map<std::string, std::int64_t> counts;
    for (const Json& entry : base::json_or_throw(said.out))
        counts[entry.at("model").get<std::string>() + " " + entry.at("preset").get<std::string>()] = entry.at("parameters");
    EXPECT_EQ(counts["collective debug"], 559738);
    EXPECT_EQ(counts["collective phase1"], 2884042);
    EXPECT_EQ(counts["collective debug-r2"], 567044);
    EXPECT_EQ(counts["collective phase1-r2"], 2969887);
    for (const char* name : {"shallow", "balanced", "deep", "very_deep", "deep_resnet", "very_deep_resnet"}) {
        EXPECT_NEAR(static_cast<double>(counts[std::string(name) + " debug"]) / 559738, 1, 0.05) << name;
        EXPECT_NEAR(static_cast<double>(counts[std::string(name) + " phase1"]) / 2884042, 1, 0.05) << name;
    }
}

TEST_F(Commands, TrainEvalAndTheirJsonAgree) {
    const Said trained = train("run", {"--json", "--set", "train.epochs=3"});
    ASSERT_EQ(trained.status, 0) << trained.err;
    const Json result = base::json_or_throw(trained.out);
    EXPECT_EQ(result.at("epochs"), 3);
    EXPECT_GT(result.at("test_accuracy").get<double>(), 0.15);
    EXPECT_NE(trained.err.find("epoch 3/3"), std::string::npos);
    const Said evaluated = call({"eval", path("run"), "--json", "--device", "cpu"});
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    EXPECT_EQ(base::json_or_throw(evaluated.out).at("accuracy"), result.at("test_accuracy"));
    EXPECT_EQ(base::json_or_throw(evaluated.out).at("parameters"), 559738);
    for (const char* file :
         {"manifest.json", "metrics.jsonl", "checkpoints/last/model.safetensors", "checkpoints/best/model.safetensors"})
        EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / file)) << file;
}

TEST_F(Commands, EvalReportsEachClass) {
    ASSERT_EQ(train("run", {"--set", "members=2"}).status, 0);
    const Said text = call({"eval", path("run"), "--device", "cpu"});
    ASSERT_EQ(text.status, 0) << text.err;
    for (const char* word : {"precision   recall", "\n9 Ankle boot ", "\nMCC ", "predicted as"})
        EXPECT_NE(text.out.find(word), std::string::npos) << word << "\n" << text.out;
    const Json json = base::json_or_throw(call({"eval", path("run"), "--device", "cpu", "--json"}).out);
    ASSERT_EQ(json.at("members").size(), 2u);
    for (const Json& member : json.at("members")) {
        double right = 0, all = 0;
        for (std::size_t i = 0; i < 10; ++i)
            for (std::size_t j = 0; j < 10; ++j) {
                all += member.at("confusion").at(i).at(j).get<double>();
                right += i == j ? member.at("confusion").at(i).at(j).get<double>() : 0;
            }
        EXPECT_EQ(all, 60);
        EXPECT_EQ(right / all, member.at("accuracy").get<double>());
        EXPECT_EQ(member.at("classes").at(3).at("name"), "Dress");
        EXPECT_EQ(member.at("classes").at(3).at("samples"), 6);
        for (const Json& entry : member.at("classes"))
            EXPECT_EQ(entry.at("precision").is_null(), entry.at("predicted") == 0) << base::json_text(entry);
    }
    EXPECT_EQ(json.at("confusion"), json.at("members").at(json.at("member").get<std::size_t>()).at("confusion"));
}

TEST_F(Commands, InitAndPatience) {
    ASSERT_EQ(train("a").status, 0);
    const Said tuned = train("b", {"--init", path("a"), "--json", "--set", "optim.lr=0", "--set", "train.epochs=9", "--set",
                                   "train.patience=1", "--set", "model.name=cnn", "--set", "model.preset=debug"});
    expect_refusal(tuned, {path("a"), "missing ", "additional "});
    expect_refusal(train("a", {"--init", path("a"), "--resume"}), {"--init starts a new run and --resume continues one"});
    expect_refusal(train("c", {"--init", ""}), {"--init"});
    const Said patient = train("d", {"--json", "--set", "optim.lr=0", "--set", "train.epochs=9", "--set", "train.patience=1",
                                     "--set", "model.name=cnn", "--set", "model.preset=debug"});
    ASSERT_EQ(patient.status, 0) << patient.err;
    EXPECT_EQ(base::json_or_throw(patient.out).at("epochs"), 2);
    EXPECT_NE(base::json_or_throw(patient.out).at("ended_early").get<std::string>().find("train.patience = 1"),
              std::string::npos);
    ASSERT_EQ(train("e", {"--init", path("d"), "--set", "model.name=cnn", "--set", "model.preset=debug"}).status, 0);
}

TEST_F(Commands, PlainOutputHasNoControlCharacters) {
    const Said said = train("run");
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out.find('\r'), std::string::npos);
    EXPECT_EQ(said.out.find('\x1b'), std::string::npos);
    EXPECT_NE(said.out.find("test accuracy"), std::string::npos);
    EXPECT_EQ(said.err, "");
    const Said quiet = train("quiet", {"--quiet"});
    EXPECT_EQ(quiet.out.find("epoch 1/1"), std::string::npos);
    EXPECT_NE(quiet.out.find("test accuracy"), std::string::npos);
}

TEST_F(Commands, EnvironmentBeatsTheRecipeAndFlagsBeatIt) {
    const ChildOptions twice{0, {"MILLRACE_TRAIN__EPOCHS=2"}, {}, false};
    EXPECT_EQ(base::json_or_throw(train("a", {"--json"}, twice).out).at("epochs"), 2);
    EXPECT_EQ(base::json_or_throw(train("b", {"--json", "--set", "train.epochs=3"}, twice).out).at("epochs"), 3);
}

TEST_F(Commands, KeysAreThoseOfTheRecipesModel) {
    EXPECT_NE(call({"train", "--keys"}).out.find("model.n_experts"), std::string::npos);
    write("deep.toml", "[model]\nname = \"deep\"\npreset = \"phase1\"\n");
    const Said said = call({"train", "--keys", path("deep.toml")});
    EXPECT_EQ(said.status, 0) << said.err;
    EXPECT_NE(said.out.find("phase1"), std::string::npos) << said.out;
    EXPECT_EQ(said.out.find("model.n_experts"), std::string::npos);
    EXPECT_EQ(call({"train", "--keys", "--set", "model.name=deep"}).out.find("model.n_experts"), std::string::npos);
}

TEST_F(Commands, PartsAndKeysAreSaidInWordsOfTheirOwn) {
    EXPECT_NE(call({"train", "--keys"}).out.find("the warm-up in epochs instead of steps"), std::string::npos);
    const Said said = train("run", {"--set", "train.steps=1"});
    EXPECT_NE(said.out.find("270 images to train on, 30 for validation, 60 to test"), std::string::npos) << said.out;
}

TEST_F(Commands, EvalChoosesTheMemberThatTrainingChose) {
    for (const char* metric : {"validation_accuracy", "validation_loss"}) {
        const Said trained = train(metric, {"--json", "--set", "members=3", "--set", "optim.lr=1e-6,1e-3,1e-5", "--set",
                                            std::string("checkpoint.best_metric=") + metric});
        ASSERT_EQ(trained.status, 0) << trained.err;
        const Json result = base::json_or_throw(trained.out);
        EXPECT_EQ(result.at("member"), 1);
        const Said evaluated = call({"eval", path(metric), "--json"});
        ASSERT_EQ(evaluated.status, 0) << evaluated.err;
        const Json json = base::json_or_throw(evaluated.out);
        EXPECT_EQ(json.at("member"), 1);
        EXPECT_EQ(json.at("accuracy"), result.at("test_accuracy"));
        EXPECT_EQ(json.at("accuracy"), json.at("members").at(1).at("accuracy"));
    }
}

TEST_F(Commands, DataIsMadeOnce) {
    const std::vector<std::string> words{"data", "make",   "garments", "--out",  path("made"), "--train",
                                         "50",   "--test", "20",       "--seed", "9"};
    EXPECT_EQ(call(words).status, 0);
    const Said again = call(words);
    EXPECT_EQ(again.status, 0);
    EXPECT_NE(again.out.find("already"), std::string::npos);
    expect_refusal(call({"data", "make", "garments", "--out", path("made"), "--train", "51", "--test", "20"}), {"made"});
    expect_refusal(call({"data", "make", "socks", "--out", path("socks")}), {"KIND"});
}

TEST_F(Commands, PairsAreMadeOnce) {
    const std::vector<std::string> words{"data", "make", "pairs", "--out", path("made"), "--count", "30", "--dimensions", "48"};
    const Said made = call(words);
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_NE(made.out.find("30 pairs"), std::string::npos) << made.out;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "made" / "pairs.safetensors"));
    EXPECT_NE(call(words).out.find("already"), std::string::npos);
    expect_refusal(call({"data", "make", "pairs", "--out", path("made"), "--count", "31"}), {"made"});
    expect_refusal(call({"data", "make", "pairs", "--out", path("new"), "--count", "0"}), {"pairs", "1 to"});
    expect_refusal(call({"data", "make", "pairs", "--out", path("new"), "--dimensions", "20000"}), {"16384"});
    expect_refusal(call({"data", "make", "pairs", "--out", path("new"), "--train", "5"}), {"--train", "garments"});
    expect_refusal(call({"data", "make", "garments", "--out", path("new"), "--count", "5"}), {"--count", "pairs"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

TEST_F(Commands, BenchPrintsTheFixedKeys) {
    const Said said = call({"bench", "collective-debug-b32", "--device", "cpu", "--no-peers", "--seconds", "0.01", "--json"});
    ASSERT_EQ(said.status, 0) << said.err;
    const Json rows = base::json_or_throw(said.out);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].at("name"), "collective-debug-b32");
    EXPECT_EQ(rows[0].at("device"), "cpu");
    EXPECT_GT(rows[0].at("ours_ms").get<double>(), 0);
    EXPECT_TRUE(rows[0].at("peers").is_object());
    EXPECT_TRUE(rows[0].at("spread").is_number());
    expect_refusal(call({"bench", "collective-debug-b33"}), {"collective-debug-b32"});
}

TEST_F(Commands, BenchRefusesKeysThatItCannotFollow) {
    const auto set = [&](const std::string& setting) {
        return call({"bench", "transformer-debug", "--device", "cpu", "--no-peers", "--seconds", "0.01", "--set", setting});
    };
    expect_refusal(set("data.path=elsewhere"), {"--set data.path=elsewhere", "random data", "data.length"});
    expect_refusal(set("train.epochs=3"), {"--set train.epochs=3", "one training step"});
    expect_refusal(set("threads=1"), {"--set threads=1", "--threads"});
    expect_refusal(set("data.lenght=8"), {"data.length"});
    EXPECT_EQ(set("data.length=8").status, 0);
}

TEST_F(Commands, BenchTimesThePointsOfAFile) {
    std::ofstream(folder_ / "points") << "# two shapes\n\ntransformer-debug data.length=8 train.batch=2\n"
                                         "shallow-debug train.batch=4 members=2\n";
    const std::vector<std::string> words{"bench",      "--points",     path("points"), "--device", "cpu",
                                         "--no-peers", "--no-ceiling", "--seconds",    "0.01"};
    const Said said = call(words);
    ASSERT_EQ(said.status, 0) << said.err;
    std::istringstream lines(said.out);
    std::vector<Json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(base::json_or_throw(line));
    ASSERT_EQ(rows.size(), 2u) << said.out;
    EXPECT_EQ(rows[0].at("settings"), (Json{"data.length=8", "train.batch=2"}));
    EXPECT_EQ(rows[1].at("batch"), 8);
    EXPECT_GT(rows[0].at("parameters"), 0);
    std::ofstream(folder_ / "points") << "shallow-debug\nshallow-debug train.epochs=3\n";
    expect_refusal(call(words), {"train.epochs"});
    std::ofstream(folder_ / "points") << "\nshalow-debug\n";
    expect_refusal(call(words), {"points:2", "shallow-debug"});
}

TEST_F(Commands, PlanPrintsEveryKernelAndWhatIsHeld) {
    const Said said = call({"plan", path("recipe.toml"), "--device", "cpu", "--set", "train.batch=16", "--json", "--time"});
    ASSERT_EQ(said.status, 0) << said.err;
    const Json plan = base::json_or_throw(said.out);
    EXPECT_EQ(plan.at("parameters"), 559738);
    EXPECT_EQ(plan.at("batch"), 16);
    EXPECT_GE(plan.at("memory_bytes").at("gradients").get<double>(), 4.0 * 559738);
    EXPECT_GT(plan.at("memory_bytes").at("activations").get<double>(), 4.0 * 16 * 784);
    double flop = 0;
    for (const Json& kernel : plan.at("kernels")) {
        EXPECT_FALSE(kernel.at("records").empty());
        EXPECT_GT(kernel.at("us").get<double>(), 0);
        flop += kernel.at("flop").get<double>();
    }
    EXPECT_GT(flop, 2.0 * 16 * 559738) << "each weight is multiplied at least once for each row";
    const Said text = call({"plan", path("recipe.toml"), "--device", "cpu"});
    EXPECT_NE(text.out.find("dense_forward head.3 [1,1,"), std::string::npos) << text.out;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs")) << "nothing is trained";
    expect_refusal(call({"plan", path("absent.toml")}), {"absent.toml"});
}

TEST_F(Commands, BenchListsEveryRow) {
    const Said said = call({"bench", "--list", "--device", "cpu"});
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.out.rfind("collective-debug-b32\n", 0), 0u) << said.out;
    EXPECT_NE(said.out.find("\nenergy_flow-tiny  only when named\n"), std::string::npos) << said.out;
}

}  // namespace
}  // namespace millrace::cli
