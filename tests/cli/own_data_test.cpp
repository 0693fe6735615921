// From data as people have it to a trained model: pictures, a table, a text, arrays.
#include <cmath>

#include "cli/own_data.h"

namespace millrace::cli {
namespace {

TEST_F(OwnData, AFolderOfPicturesIsLearnedAndEvaluated) {
    if (!io::can_read_pictures()) GTEST_SKIP() << "this build reads no pictures";
    write_pictures("photos", 40);
    const Json result =
        trained(kCnn, "photos", "run", {"train.epochs=20", "data.augment=true", "data.rotate=5", "optim.lr=3e-3"});
    EXPECT_GE(result.at("validation_accuracy").get<double>(), 0.9);
    const Said evaluated = call({"eval", path("run")});
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    EXPECT_NE(evaluated.out.find("0 green"), std::string::npos) << evaluated.out;
    // Other pictures are prepared in the same way: their size and class names come from the checkpoint.
    std::filesystem::create_directories(folder_ / "other/train");
    std::filesystem::create_directories(folder_ / "other/test");
    std::filesystem::copy(folder_ / "photos/red", folder_ / "other/train/red", std::filesystem::copy_options::recursive);
    std::filesystem::copy(folder_ / "photos/red", folder_ / "other/test/red", std::filesystem::copy_options::recursive);
    const Said other = call({"eval", path("run"), "--data", path("other"), "--json"});
    ASSERT_EQ(other.status, 0) << other.err;
    EXPECT_EQ(base::json_or_throw(other.out).at("samples"), 40);
    EXPECT_GE(base::json_or_throw(other.out).at("accuracy").get<double>(), 0.9);
    write_pictures("strange", 2);
    std::filesystem::rename(folder_ / "strange/red", folder_ / "strange/blue");
    const Said unknown = call({"eval", path("run"), "--data", path("strange")});
    EXPECT_EQ(unknown.status, 2) << unknown.err;
    EXPECT_NE(unknown.err.find("has the class \"blue\", which the training data had not; it had green, red"), std::string::npos)
        << unknown.err;
}

TEST_F(OwnData, ShowSaysWhatPicturesAreTakenFor) {
    if (!io::can_read_pictures()) GTEST_SKIP() << "this build reads no pictures";
    write_pictures("photos", 10);
    const Said said = call({"data", "show", path("photos"), "--sheet", path("sheet.png")});
    ASSERT_EQ(said.status, 0) << said.err;
    for (const char* word : {"holds pictures", "8 wide, 6 high, colour", "green", "red", "validation"})
        EXPECT_NE(said.out.find(word), std::string::npos) << said.out;
    const auto sheet = io::read_file(path("sheet.png"));
    ASSERT_TRUE(sheet.ok());
    const auto head = io::picture_head(*sheet, "sheet");
    ASSERT_TRUE(head.ok());
    EXPECT_EQ(head->width, 12u * 10 + 2);
    EXPECT_EQ(head->height, 2u * 8 + 2);
}

TEST_F(OwnData, ATableOfNumbersIsARegression) {
    std::string table = "town,area,price\n";
    for (int i = 0; i < 400; ++i)
        table += std::string(i % 3 == 0 ? "Rome," : "Oslo,") + std::to_string(i * 37 % 100) + "," +
                 std::to_string(1000 * (i * 37 % 100) + (i % 3 == 0 ? 50000 : 0)) + "\n";
    write("houses.csv", table);
    const char* recipe = "[model]\nname = \"shallow\"\npreset = \"debug\"\nwidths = [16]\ndropout = 0.0\n[train]\nbatch = 16\n";
    const Json result = trained(recipe, "houses.csv", "run", {"train.epochs=20", "data.target=price", "optim.lr=1e-2"});
    EXPECT_GT(result.at("r2").get<double>(), 0.9);
    EXPECT_LT(result.at("mean_absolute_error").get<double>(), 15000) << "in the unit of the column";
    EXPECT_FALSE(result.contains("test_accuracy"));
    const auto metrics = io::read_text(path("run/metrics.jsonl"));
    ASSERT_TRUE(metrics.ok());
    const std::size_t first = metrics->find("\"train_loss\": ");
    ASSERT_NE(first, std::string::npos);
    EXPECT_LT(std::stod(metrics->substr(first + 14)), 3) << "begins near the mean of the answers";
    const Said evaluated = call({"eval", path("run")});
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    EXPECT_NE(evaluated.out.find("R2 "), std::string::npos) << evaluated.out;
    // A word that was never seen, in another file.
    write("more.csv", table + "Bern,5,5000\n");
    EXPECT_EQ(call({"eval", path("run"), "--data", path("more.csv")}).status, 0);
    const Said shown = call({"data", "show", path("houses.csv"), "--target", "town"});
    ASSERT_EQ(shown.status, 0) << shown.err;
    EXPECT_NE(shown.out.find("Oslo"), std::string::npos) << shown.out;
    ASSERT_EQ(call({"data", "show", path("houses.csv"), "--target", "price", "--list", path("parts.csv")}).status, 0);
    const auto list = io::read_text(path("parts.csv"), 1 << 20);
    ASSERT_TRUE(list.ok());
    EXPECT_TRUE(list->starts_with("sample,part,answer\n0,")) << *list;
    EXPECT_NE(list->find(",50000\n1,"), std::string::npos) << "the first row's price, in its own unit: " << *list;
}

TEST_F(OwnData, WhatDoesNotFitIsStreamed) {
    if (!io::can_read_pictures()) GTEST_SKIP() << "this build reads no pictures";
    write_pictures("photos", 40);
    const Json pictures = trained(kCnn, "photos", "pictures",
                                  {"train.epochs=20", "optim.lr=3e-3", "data.mode=stream", "data.window=8KiB", "eval.batch=6"});
    EXPECT_GE(pictures.at("validation_accuracy").get<double>(), 0.9);
    std::string table = "town,area,price\n";
    for (int i = 0; i < 400; ++i)
        table += std::string(i % 3 == 0 ? "Rome," : "Oslo,") + std::to_string(i * 37 % 100) + "," +
                 std::to_string(1000 * (i * 37 % 100) + (i % 3 == 0 ? 50000 : 0)) + "\n";
    write("houses.csv", table);
    const char* recipe = "[model]\nname = \"shallow\"\npreset = \"debug\"\nwidths = [16]\ndropout = 0.0\n[train]\nbatch = 16\n";
    const Json rows = trained(recipe, "houses.csv", "table",
                              {"train.epochs=20", "data.target=price", "optim.lr=1e-2", "data.mode=stream", "data.window=4KiB"});
    EXPECT_GT(rows.at("r2").get<double>(), 0.9);
    for (const char* run : {"pictures", "table"}) {
        const auto metrics = io::read_text(path(std::string(run) + "/metrics.jsonl"));
        ASSERT_TRUE(metrics.ok());
        EXPECT_NE(metrics->find("loader_bytes"), std::string::npos) << run;
        EXPECT_EQ(metrics->find("mix_deviation") == std::string::npos, std::string(run) == "table") << "numbers have no classes";
        EXPECT_EQ(call({"eval", path(run)}).status, 0);
    }
}

TEST_F(OwnData, OfMoreThanAThousandClassesThePairsThatOccurAreCounted) {
    std::string table = "place,kind\n";
    for (int i = 0; i < 12 * 1030; ++i)
        table += std::to_string(i % 1030 + i / 1030 % 3) + ",kind" + std::to_string(i % 1030) + "\n";
    write("kinds.csv", table);
    const char* recipe = "[model]\nname = \"shallow\"\npreset = \"debug\"\nwidths = [8]\n[train]\nbatch = 512\n";
    trained(recipe, "kinds.csv", "run", {"train.epochs=1", "data.target=kind"});
    const Said evaluated = call({"eval", path("run"), "--json"});
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    const Json json = base::json_or_throw(evaluated.out);
    EXPECT_EQ(json.at("classes").size(), 1030u);
    EXPECT_FALSE(json.contains("confusion"));
    std::int64_t rows = 0, right = 0;
    for (const Json& pair : json.at("confusion_counts")) {
        rows += pair.at(2).get<std::int64_t>();
        right += pair.at(0) == pair.at(1) ? pair.at(2).get<std::int64_t>() : 0;
    }
    EXPECT_EQ(rows, json.at("samples").get<std::int64_t>());
    EXPECT_NEAR(static_cast<double>(right) / static_cast<double>(rows), json.at("accuracy").get<double>(), 1e-9);
    const auto picture = io::read_text(path("run") + "/confusion.svg");
    ASSERT_TRUE(picture.ok());
    EXPECT_NE(picture->find("taken for kind"), std::string::npos);
    EXPECT_EQ(picture->find("<path"), std::string::npos);
}

TEST_F(OwnData, OneTextFileIsCutIntoParts) {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += i % 3 == 0 ? "one " : i % 3 == 1 ? "two " : "three ";
    write("all.txt", text);
    const char* recipe =
        "[model]\nname = \"transformer\"\npreset = \"debug\"\n[data]\nlength = 16\nvocabulary = 16\n[train]\nbatch = 8\n";
    const Json result = trained(recipe, "all.txt", "run", {"train.epochs=2"});
    EXPECT_EQ(result.at("epochs"), 2);
    EXPECT_NE(call({"data", "show", path("all.txt")}).out.find("validation: "), std::string::npos);
}

TEST_F(OwnData, WhatIsNoDataIsRefusedWithWhatWouldBe) {
    std::filesystem::create_directories(folder_ / "nothing");
    write("nothing/readme.md", "hello");
    write("own.toml", std::string(kCnn));
    expect_refusal(call({"train", path("own.toml"), "--set", "data.path=" + path("nothing"), "--out", path("run")}),
                   {"a folder for each class", ".csv", ".npz"});
    write("t.csv", "a,b\n1,2\n3,4\n");
    expect_refusal(call({"train", path("own.toml"), "--set", "data.path=" + path("t.csv"), "--out", path("run")}),
                   {"data.target names no column", "a, b"});
}

}  // namespace
}  // namespace millrace::cli
