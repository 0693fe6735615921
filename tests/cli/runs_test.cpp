
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/folder.h"

namespace millrace::cli {
namespace {

using Runs = InFolder;
using Json = nlohmann::json;

TEST_F(Runs, AreListedComparedAndLeaveAReport) {
    ASSERT_EQ(train("runs/slow", {"--set", "optim.lr=0.0001"}).status, 0);
    ASSERT_EQ(train("runs/fast", {"--set", "optim.lr=0.002"}).status, 0);
    const Said table = call({"runs", path("runs"), "--sort", "optim.lr"});
    EXPECT_EQ(table.status, 0) << table.err;
    EXPECT_EQ(std::ranges::count(table.out, '\n'), 3);
    EXPECT_LT(table.out.find("slow"), table.out.find("fast")) << table.out;
    const Json list = base::json_or_throw(call({"runs", path("runs"), "--json", "--filter", "optim.lr>0.001"}).out);
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(list[0]["name"], "fast");
    EXPECT_EQ(list[0]["state"], "finished");
    EXPECT_EQ(list[0]["metric"], "validation_accuracy");
    EXPECT_TRUE(list[0]["test"].is_number());
    EXPECT_EQ(list[0]["curve"].size(), 1u);
    EXPECT_EQ(call({"runs", path("runs"), "--filter", "state=failed"}).out, "no runs in " + path("runs") + " fit\n");
    expect_refusal(call({"runs", path("absent")}), {"absent"});
    expect_refusal(call({"runs", path("runs"), "--sort", "speed"}), {"speed", "best, test"});
    expect_refusal(call({"runs", path("runs"), "--filter", "best"}), {"best>0.9"});

    const Said compared = call({"compare", path("runs/slow"), path("runs/fast")});
    EXPECT_EQ(compared.status, 0) << "too short to compare their speed, not their scores: " << compared.err;
    for (const char* words : {"validation_accuracy", "  optim.lr", "0.0001", "0.002", "loss after epoch"})
        EXPECT_NE(compared.out.find(words), std::string::npos) << words << "\n" << compared.out;
    const Json json = base::json_or_throw(call({"compare", path("runs/slow"), path("runs/fast"), "--json"}).out);
    EXPECT_EQ(json["trainings"]["differing_keys"].size(), 1u) << base::json_text(json, 1);
    EXPECT_EQ(call({"compare", path("runs/slow"), path("runs/fast"), "--fail-if-slower", "5%"}).status, 4)
        << "a gate wants a verdict on the speed";
    std::ifstream report(folder_ / "runs/fast/report.html");
    const std::string page((std::istreambuf_iterator<char>(report)), {});
    EXPECT_NE(page.find("<title>Millrace run: fast</title>"), std::string::npos);
    EXPECT_NE(page.find(R"("name":"confusion.svg","data":"data:image/svg+xml;base64,)"), std::string::npos);
}

TEST_F(Runs, ModelsShowNamesLayersWithTheirWork) {
    const Said said = call({"models", "show", path("recipe.toml"), "--json"});
    ASSERT_EQ(said.status, 0) << said.err;
    const Json model = base::json_or_throw(said.out);
    EXPECT_EQ(model.at("parameters"), 559738);
    std::int64_t parameters = 0, step = 0;
    Json first;
    for (const Json& layer : model.at("layers")) {
        parameters += layer.at("parameters").get<std::int64_t>();
        step += layer.at("step_flop").get<std::int64_t>();
        if (layer.at("name") == "experts.0.0") first = layer;
    }
    EXPECT_EQ(parameters, 559738) << "every parameter belongs to one layer";
    EXPECT_EQ(step, model.at("step_flop").get<std::int64_t>()) << "and every product";
    ASSERT_FALSE(first.is_null()) << said.out;
    EXPECT_EQ(first.at("copies"), 2);
    EXPECT_EQ(first.at("parameters"), 2 * (784 * 128 + 128));
    EXPECT_EQ(first.at("forward_flop"), 2ll * 64 * 784 * 128 * 2) << "batch 64, two experts";
    EXPECT_EQ(first.at("shapes").at("weight"), "128 x 784");
    const Said text = call({"models", "show", path("recipe.toml"), "--set", "train.batch=16"});
    EXPECT_NE(text.out.find("experts.0.0 (x2)"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("batch 16"), std::string::npos) << text.out;
    expect_refusal(call({"models", "show", path("absent.toml")}), {"absent.toml"});
    EXPECT_EQ(call({"models"}).status, 0) << "the list is still there";
}

TEST_F(Runs, UiRefusesWhatItCannotServe) {
    expect_refusal(call({"ui", path("absent")}), {"absent"});
    expect_refusal(call({"ui", folder_.string(), "--port", "70000"}), {"--port 70000"});
    expect_refusal(call({"ui", folder_.string(), "--host", ""}), {"--host"});
    expect_refusal(call({"ui", folder_.string(), "--host", "no.such.name"}), {"numeric address"});
}

}  // namespace
}  // namespace millrace::cli
