__attribute__((noinline)) static int deep(int more)
{
    return more * 2;
}

int of_library(int more)
{
    return deep(more) + deep(more);
}
