// Files of the source tree that tests read: models and texts.
#ifndef EVERWARM_TESTING_SOURCE_FILES_H_
#define EVERWARM_TESTING_SOURCE_FILES_H_

#include <string>

namespace everwarm {

// `path` is relative to the root of the source tree.
std::string SourceFile(const std::string& path);

// A real model by its file name; it may be missing where none was fetched.
inline std::string ModelPath(const std::string& name) {
  return SourceFile("models/" + name);
}

// A page of English prose. Empty when the file cannot be read.
std::string TestText();

}  // namespace everwarm

#endif  // EVERWARM_TESTING_SOURCE_FILES_H_
