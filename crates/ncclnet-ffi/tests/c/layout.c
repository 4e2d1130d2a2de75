/*
 * Prints the size of every struct of ncclnet_ibnet.h and the offset of every field, one a line, as the
 * compiler has them:
 *
 *   size TYPE BYTES
 *   offset TYPE FIELD BYTES
 *
 * The header asserts all of it when this is compiled. The Rust test `abi` compares these lines with
 * the Rust declarations.
 */
#include <stdio.h>

#include "ncclnet_ibnet.h"

#define PRINT_SIZE(type, bytes) printf("size " #type " %zu\n", sizeof(type));
#define PRINT_OFFSET(type, field, bytes) \
  printf("offset " #type " " #field " %zu\n", offsetof(type, field));

int main(void) {
  NCCLNET_LAYOUT(PRINT_SIZE, PRINT_OFFSET)
  return 0;
}
